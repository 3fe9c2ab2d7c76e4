"""UNETR: a vision transformer as the encoder of a convolutional decoder. The network is MONAI's.

A. Hatamizadeh et al., "UNETR: Transformers for 3D medical image segmentation", WACV 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

from monai.networks.nets.unetr import UNETR
from torch import Tensor

from factorizer.models.sizes import check_fixed_size, check_multiple, freeze

PATCH, LAYERS = 16, 12  # of the transformer, fixed in MONAI

# MONAI's transformer blocks have a norm for cross-attention, which UNETR does not use
UNUSED = tuple(
    f"vit.blocks.{i}.norm_cross_attn.{name}" for i in range(LAYERS) for name in ("weight", "bias")
)


class FixedUNETR(UNETR):  # type: ignore[misc] # MONAI is not typed
    """UNETR takes only images of the size it was built for; say so before it fails inside."""

    def __init__(self, *, in_channels: int, img_size: Sequence[int], **options: object) -> None:
        check_multiple(img_size, PATCH, "UNETR")
        super().__init__(
            in_channels=in_channels, img_size=img_size, spatial_dims=len(img_size), **options
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
