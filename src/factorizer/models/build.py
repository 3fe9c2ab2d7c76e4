"""Build a registered system with weights that follow from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from factorizer.models.registry import build_model


def build_network(name: str, options: Mapping[str, Any], *, seed: int) -> nn.Module:
    """The system `name` with weights drawn from `seed`.

    `options` are the keywords of `build_model`. PyTorch draws first weights from its global
    generator, which is seeded here.
    """
    torch.manual_seed(seed)
    return build_model(name, **options)
