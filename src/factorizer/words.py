"""Words for messages: counts, and names that are safe to print."""

from __future__ import annotations

import unicodedata


def count(number: int, noun: str, plural: str = "") -> str:
    """1 case, 2 cases."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """Text without what would steer a terminal: control characters, and marks that turn the
    direction of writing, stand as escapes; line ends and tabs stay."""
    kept = ("\n", "\t")
    hidden = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return "".join(
        c
        if c in kept or unicodedata.category(c) not in hidden
        else c.encode("unicode_escape").decode()
        for c in text
    )
