"""UNETR: a vision transformer as encoder, and a convolutional decoder.

A. Hatamizadeh et al., "UNETR: Transformers for 3D medical image segmentation", WACV 2022. The
network is MONAI's.
"""

from __future__ import annotations

from collections.abc import Sequence

from monai.networks.nets.unetr import UNETR
from torch import Tensor

from factorizer.models.sizes import check_fixed_size, check_multiple, freeze

TOKEN_SIZE, LAYERS = 16, 12  # of the transformer, fixed in MONAI

# MONAI's transformer blocks have a norm for cross-attention, which UNETR does not use
UNUSED_NORMS = [f"vit.blocks.{index}.norm_cross_attn" for index in range(LAYERS)]
UNUSED = (
    *(f"{norm}.weight" for norm in UNUSED_NORMS),
    *(f"{norm}.bias" for norm in UNUSED_NORMS),
)


class FixedUNETR(UNETR):  # type: ignore[misc] # MONAI is not typed
    """MONAI's UNETR with an error that says which image size it takes: only its own."""

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        img_size: Sequence[int],
        feature_size: int,
        hidden_size: int,
        mlp_dim: int,
        num_heads: int,
        dropout_rate: float,
    ) -> None:
        check_multiple(img_size, TOKEN_SIZE, "UNETR")
        super().__init__(
            in_channels=in_channels,
            out_channels=out_channels,
            img_size=img_size,
            feature_size=feature_size,
            hidden_size=hidden_size,
            mlp_dim=mlp_dim,
            num_heads=num_heads,
            dropout_rate=dropout_rate,
            spatial_dims=len(img_size),
        )
        self.image_shape = (in_channels, *img_size)
        freeze(self, UNUSED)

    def forward(self, x: Tensor) -> Tensor:
        check_fixed_size(x, self.image_shape, "UNETR")
        return super().forward(x)


def build_unetr(
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    feature_size: int = 32,
    hidden_size: int = 768,
    mlp_dim: int = 3072,
    num_heads: int = 12,
    dropout_rate: float = 0.0,
) -> FixedUNETR:
    """Build UNETR; the defaults are the paper's."""
    return FixedUNETR(
        in_channels=in_channels,
        out_channels=out_channels,
        img_size=spatial_size,
        feature_size=feature_size,
        hidden_size=hidden_size,
        mlp_dim=mlp_dim,
        num_heads=num_heads,
        dropout_rate=dropout_rate,
    )
