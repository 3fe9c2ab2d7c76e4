"""Sources that a user may name: NAME=PATH, or PATH alone."""

from __future__ import annotations

from pathlib import Path

from factorizer.errors import FactorizerError


def split_name(source: str | Path) -> tuple[str | None, str]:
    """NAME=PATH -> NAME and PATH; PATH alone -> None and PATH. An existing path has no name."""
    text = str(source)
    name, sign, path = text.partition("=")
    if not sign or Path(text).exists():
        return None, text
    if not name.strip():
        raise FactorizerError(f"{text!r} has no name before the sign =; give NAME=PATH, or PATH")
    return name, path
