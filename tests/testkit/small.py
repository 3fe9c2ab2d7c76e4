"""A small version of every registered system, for tests that run them all."""

from __future__ import annotations

from typing import Any

from torch import nn

from factorizer.models.registry import build_model

U_SHAPE: dict[str, Any] = {"spatial_size": (16, 16, 16), "widths": (8, 16, 32)}
SMALL: dict[str, dict[str, Any]] = {
    "nnunet": U_SHAPE,
    "res-unet": U_SHAPE,
    "performer": U_SHAPE | {"head_dim": 4},
    "transbts": {
        "spatial_size": (16, 16, 16),
        "width": 8,
        "embed_dim": 32,
        "num_heads": 4,
        "num_layers": 2,
        "hidden": 64,
    },
    "unetr": {
        "spatial_size": (32, 32, 32),
        "feature_size": 8,
        "hidden_size": 48,
        "mlp_dim": 96,
        "num_heads": 4,
    },
    # MONAI's instance norm needs two voxels at the coarsest level
    "swin-unetr": {"spatial_size": (64, 32, 32), "feature_size": 12},
    "nnformer": {"spatial_size": (32, 32, 32), "embed_dim": 24},
    "global-factorizer": U_SHAPE,
    "local-factorizer": U_SHAPE | {"window": 4},
    "swin-factorizer": U_SHAPE | {"window": 4},
    "conv-factorizer": U_SHAPE | {"window": 4},
}


def build_small(name: str, **options: Any) -> nn.Module:
    """A small network from 2 channels to 1. `options` replace those of its small version."""
    return build_model(name, in_channels=2, out_channels=1, **SMALL[name] | options)
