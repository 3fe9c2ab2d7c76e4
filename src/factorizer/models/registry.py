"""The registered systems: a name, one line about it, and its builder. Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from factorizer.errors import FactorizerError
from factorizer.words import suggest

if TYPE_CHECKING:
    from torch import nn

    from factorizer.models.options import (
        ConvFactorizerOptions,
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
    """An option that the system does not have."""


@dataclass(frozen=True)
class System:
    """A system that `build_model` can build.

    `builder` is `module:function`. It is called with `fixed` and with the user's options.
    """

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
    "conv-factorizer": System(
        "NMF for context and convolutions for detail: ours, not the paper's",
        f"{MODELS}.conv_factorizer:build_conv_factorizer",
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
    name: Literal["conv-factorizer"],
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    **options: Unpack[ConvFactorizerOptions],
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
@overload  # for a name that is known only when the program runs: **options is one dictionary
def build_model(
    name: str, *, in_channels: int, out_channels: int, spatial_size: Sequence[int]
) -> nn.Module: ...
def build_model(
    name: str, *, in_channels: int, out_channels: int, spatial_size: Sequence[int], **options: Any
) -> nn.Module:
    """Build a registered system with random weights.

    Args:
        name: The system, such as "swin-factorizer" (`factorizer models` lists them).
        in_channels: The channels of the images.
        out_channels: The maps of logits, one per region.
        spatial_size: The size of the images that it is trained on, one number per axis.
        options: Other options of the system, such as `widths` or `num_iters`. An unknown one is an
            `OptionError`.

    Returns:
        A network from images (B, in_channels, *spatial) to logits (B, out_channels, *spatial). In
        training mode some systems return a list of logits, the full resolution first.

    >>> import torch
    >>> from factorizer import build_model
    >>> model = build_model(
    ...     "swin-factorizer",
    ...     in_channels=4,
    ...     out_channels=3,
    ...     spatial_size=(32, 32, 32),
    ...     widths=(16, 32, 64),
    ... )
    >>> tuple(model.eval()(torch.rand(1, 4, 32, 32, 32)).shape)
    (1, 3, 32, 32, 32)
    """
    check_name(name)
    if isinstance(spatial_size, int):
        raise FactorizerError(
            f"spatial_size is {spatial_size}; give one size per axis, such as {(spatial_size,) * 3}"
        )
    system, known = SYSTEMS[name], options_of(name)
    for option in options:
        if option not in known:
            hint = suggest(option, known, "its options are")
            raise OptionError(f"{name} has no option {option!r}{hint}")
    return builder_of(name)(
        **system.fixed,
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_size=tuple(spatial_size),
        **options,
    )


def check_name(name: str) -> None:
    """Raise an error unless a system has this name."""
    if name not in SYSTEMS:
        hint = suggest(name, SYSTEMS, "choose one of")
        raise FactorizerError(f"no system is named {name!r}{hint}")


def builder_of(name: str) -> Callable[..., nn.Module]:
    """The function that builds a system; its module is imported now."""
    module, function = SYSTEMS[name].builder.split(":")
    return getattr(import_module(module), function)


def options_of(name: str) -> list[str]:
    """The options of a system besides those that every system has."""
    taken = {*SYSTEMS[name].fixed, "in_channels", "out_channels", "spatial_size"}
    parameters = inspect.signature(builder_of(name)).parameters
    return [option for option in parameters if option not in taken]
