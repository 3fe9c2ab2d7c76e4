"""The registered systems: a name, one line about it, and where its builder is. Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class System:
    """A system that `build_model` can build: `module:function`, called with `fixed` and the user's options."""

    summary: str
    builder: str
    fixed: dict[str, Any] = field(default_factory=dict)


SYSTEMS = {
    "global-factorizer": System(
        "Factorizer on the whole map: global context, no locality",
        "factorizer.models.factorizer:build_factorizer",
        {"matricize": "global"},
    ),
    "local-factorizer": System(
        "Factorizer in a grid of windows: local context",
        "factorizer.models.factorizer:build_factorizer",
        {"matricize": "local"},
    ),
    "swin-factorizer": System(
        "Factorizer in windows and half-shifted windows: the paper's best",
        "factorizer.models.factorizer:build_factorizer",
        {"matricize": "shifted"},
    ),
}


def build_model(
    name: str, *, in_channels: int, out_channels: int, spatial_size: Sequence[int], **options: Any
) -> nn.Module:
    """Build a registered system.

    The model maps images (B, in_channels, *spatial) to logits (B, out_channels, *spatial). `options` are
    keywords of the system's builder (`factorizer models` lists the systems); an unknown one is an error.
    """
    if name not in SYSTEMS:
        raise ValueError(f"no system is named {name!r}{suggestion(name, SYSTEMS)}; choose one of {', '.join(SYSTEMS)}")
    if isinstance(spatial_size, int):
        raise ValueError(f"spatial_size is {spatial_size}; give one size per axis, such as {(spatial_size,) * 3}")
    system = SYSTEMS[name]
    module, function = system.builder.split(":")
    builder = getattr(import_module(module), function)
    known = [p for p in inspect.signature(builder).parameters if p not in system.fixed]
    for option in options:
        if option not in known:
            raise TypeError(
                f"{name} has no option {option!r}{suggestion(option, known)}; its options are {', '.join(known)}"
            )
    return builder(
        **system.fixed, in_channels=in_channels, out_channels=out_channels, spatial_size=tuple(spatial_size), **options
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}" if close else ""
