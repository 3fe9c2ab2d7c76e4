"""The registered systems: a name, one line about it, and where its builder is. Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from factorizer.errors import FactorizerError

if TYPE_CHECKING:
    from torch import nn

    from factorizer.models.options import (
        FactorizerOptions,
        GlobalFactorizerOptions,
        NNFormerOptions,
        NNUNetOptions,
        PerformerOptions,
        SwinUNETROptions,
        TransBTSOptions,
        UNETROptions,
    )
    from factorizer.nn.unet import UNet

MODELS = "factorizer.models"


class OptionError(FactorizerError, TypeError):
    """A keyword that a system's builder does not have."""


@dataclass(frozen=True)
class System:
    """A system that `build_model` can build: `module:function`, called with `fixed` and the user's
    options."""

    summary: str
    builder: str
    fixed: dict[str, Any] = field(default_factory=dict)


SYSTEMS = {
    "nnunet": System(
        "nnU-Net: the same U-shape with two convolutions a block",
        f"{MODELS}.nnunet:build_nnunet",
        {"residual": False},
    ),
    "res-unet": System(
        "Res-U-Net: nnU-Net with residual blocks",
        f"{MODELS}.nnunet:build_nnunet",
        {"residual": True},
    ),
    "performer": System(
        "Performer: the same U-shape with linear-time FAVOR+ attention",
        f"{MODELS}.performer:build_performer",
    ),
    "transbts": System(
        "TransBTS: convolutions, and a transformer at an eighth of the resolution",
        f"{MODELS}.transbts:build_transbts",
    ),
    "unetr": System(
        "UNETR (MONAI): a vision transformer with a convolutional decoder",
        f"{MODELS}.unetr:build_unetr",
    ),
    "swin-unetr": System(
        "Swin UNETR (MONAI): a Swin transformer with a convolutional decoder",
        f"{MODELS}.swin_unetr:build_swin_unetr",
    ),
    "nnformer": System(
        "nnFormer: window attention in encoder and decoder", f"{MODELS}.nnformer:build_nnformer"
    ),
    "global-factorizer": System(
        "Factorizer on the whole map: global context, no locality",
        f"{MODELS}.factorizer:build_factorizer",
        {"matricize": "global", "window": None},
    ),
    "local-factorizer": System(
        "Factorizer in a grid of windows: local context",
        f"{MODELS}.factorizer:build_factorizer",
        {"matricize": "local"},
    ),
    "swin-factorizer": System(
        "Factorizer in windows and half-shifted windows: the paper's best",
        f"{MODELS}.factorizer:build_factorizer",
        {"matricize": "shifted"},
    ),
}


@overload
def build_model(
    name: Literal["nnunet", "res-unet"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[NNUNetOptions],
) -> UNet: ...
@overload
def build_model(
    name: Literal["performer"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[PerformerOptions],
) -> UNet: ...
@overload
def build_model(
    name: Literal["global-factorizer"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[GlobalFactorizerOptions],
) -> UNet: ...
@overload
def build_model(
    name: Literal["local-factorizer", "swin-factorizer"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[FactorizerOptions],
) -> UNet: ...
@overload
def build_model(
    name: Literal["transbts"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[TransBTSOptions],
) -> nn.Module: ...
@overload
def build_model(
    name: Literal["unetr"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[UNETROptions],
) -> nn.Module: ...
@overload
def build_model(
    name: Literal["swin-unetr"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[SwinUNETROptions],
) -> nn.Module: ...
@overload
def build_model(
    name: Literal["nnformer"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[NNFormerOptions],
) -> nn.Module: ...
@overload  # a name that is known only later: its options come as one dictionary, **options
def build_model(
    name: str, *, in_channels: int, out_channels: int, spatial_size: Sequence[int]
) -> nn.Module: ...
def build_model(
    name: str, *, in_channels: int, out_channels: int, spatial_size: Sequence[int], **options: Any
) -> nn.Module:
    """Build a registered system.

    The model maps images (B, in_channels, *spatial) to logits (B, out_channels, *spatial).
    `options` are keywords of the system's builder (`factorizer models` lists the systems); an
    unknown one is an error.
    """
    check_name(name)
    if isinstance(spatial_size, int):
        raise FactorizerError(
            f"spatial_size is {spatial_size}; give one size per axis, such as {(spatial_size,) * 3}"
        )
    system, known = SYSTEMS[name], options_of(name)
    for option in options:
        if option not in known:
            raise OptionError(
                f"{name} has no option {option!r}{suggestion(option, known)}; its options are "
                f"{', '.join(known)}"
            )
    return builder_of(name)(
        **system.fixed,
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_size=tuple(spatial_size),
        **options,
    )


def check_name(name: str) -> None:
    if name not in SYSTEMS:
        raise FactorizerError(
            f"no system is named {name!r}{suggestion(name, SYSTEMS)}; choose one of "
            f"{', '.join(SYSTEMS)}"
        )


def builder_of(name: str) -> Callable[..., nn.Module]:
    module, function = SYSTEMS[name].builder.split(":")
    return getattr(import_module(module), function)


def options_of(name: str) -> list[str]:
    """The keywords that a system's builder takes beside those of every `build_model`."""
    taken = {*SYSTEMS[name].fixed, "in_channels", "out_channels", "spatial_size"}
    return [
        option for option in inspect.signature(builder_of(name)).parameters if option not in taken
    ]


def suggestion(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}" if close else ""
