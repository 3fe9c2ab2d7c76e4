"""Swin UNETR: a shifted-window transformer as encoder, and a convolutional decoder.

A. Hatamizadeh et al., "Swin UNETR: Swin transformers for semantic segmentation of brain tumors in
MRI images", MICCAI BrainLes Workshop 2021. The network is MONAI's.
"""

from __future__ import annotations

from collections.abc import Sequence

from monai.networks.nets.swin_unetr import SwinUNETR

from factorizer.errors import FactorizerError
from factorizer.models.sizes import check_multiple

TOTAL_STRIDE = 32


def build_swin_unetr(
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    feature_size: int = 48,
    stage_depths: Sequence[int] = (2, 2, 2, 2),
    num_heads: Sequence[int] = (3, 6, 12, 24),
    window_size: int = 7,
    dropout_rate: float = 0.0,
    drop_path_rate: float = 0.0,
) -> SwinUNETR:
    """Build Swin UNETR; the defaults are the paper's.

    It also takes images of other sizes, if every axis is a multiple of 32.
    """
    check_multiple(spatial_size, TOTAL_STRIDE, "Swin UNETR")
    if max(spatial_size) == TOTAL_STRIDE:
        raise FactorizerError(
            f"spatial_size is {tuple(spatial_size)}, which leaves one voxel at the coarsest level "
            f"to normalize; make one axis {2 * TOTAL_STRIDE} or more"
        )
    return SwinUNETR(
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_dims=len(spatial_size),
        feature_size=feature_size,
        depths=tuple(stage_depths),
        num_heads=tuple(num_heads),
        window_size=window_size,
        drop_rate=dropout_rate,
        attn_drop_rate=dropout_rate,
        dropout_path_rate=drop_path_rate,
    )
