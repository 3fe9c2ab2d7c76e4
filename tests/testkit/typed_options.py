"""What a type checker says about `build_model`.

Nothing here is run. mypy reads it (`make check`), and complains if an expected error is missing.
"""

from __future__ import annotations

from typing import Any, assert_type

from torch import nn

from factorizer import UNet, build_model


def options_are_known() -> None:
    size = (16, 16, 16)
    unet = build_model(
        "nnunet", in_channels=1, out_channels=1, spatial_size=size, widths=(8, 16), groups=4
    )
    assert_type(unet, UNet)
    factorizer = build_model(
        "swin-factorizer", in_channels=1, out_channels=1, spatial_size=size, window=4, rank=2
    )
    assert_type(factorizer, UNet)
    assert_type(
        build_model("unetr", in_channels=1, out_channels=1, spatial_size=size, num_heads=4),
        nn.Module,
    )


def wrong_options_are_errors() -> None:
    size = (16, 16, 16)
    build_model("nnunet", in_channels=1, out_channels=1, spatial_size=size, width=(8, 16))  # type: ignore[call-overload]
    build_model("unetr", in_channels=1, out_channels=1, spatial_size=size, num_heads=(3, 6))  # type: ignore[call-overload]
    build_model("global-factorizer", in_channels=1, out_channels=1, spatial_size=size, window=4)  # type: ignore[call-overload]
    build_model("nnformer", in_channels=1, out_channels=1)  # type: ignore[call-overload]


def names_may_come_from_elsewhere(name: str, options: dict[str, Any]) -> nn.Module:
    return build_model(name, in_channels=1, out_channels=1, spatial_size=(16, 16, 16), **options)
