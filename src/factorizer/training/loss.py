"""Soft Dice and binary cross-entropy under deep supervision (Eq. 15-17).

The regions overlap and the outputs are sigmoids. So the cross-entropy is binary for each region.
The Dice is computed for each sample and region, then averaged (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from factorizer.errors import FactorizerError


def soft_dice_loss(logits: Tensor, target: Tensor, epsilon: float) -> Tensor:
    """1 - (2 <G, P> + eps) / (|G|^2 + |P|^2 + eps), averaged over samples and regions (Eq. 17)."""
    p, g = logits.sigmoid().flatten(2), target.flatten(2)  # (B, regions, N)
    overlap = (p * g).sum(-1)
    squares = p.square().sum(-1) + g.square().sum(-1)
    return (1 - (2 * overlap + epsilon) / (squares + epsilon)).mean()


def region_loss(logits: Tensor, target: Tensor, epsilon: float) -> Tensor:
    """Dice plus cross-entropy at one resolution (Eq. 16), in float32."""
    logits, target = logits.float(), target.float()
    dice = soft_dice_loss(logits, target, epsilon)
    return dice + F.binary_cross_entropy_with_logits(logits, target)


def supervised_loss(
    outputs: Tensor | Sequence[Tensor], target: Tensor, *, weights: Sequence[float], epsilon: float
) -> Tensor:
    """The weighted sum over resolutions, full resolution first (Eq. 15).

    Targets are reduced to each resolution by nearest neighbour.
    """
    outputs = [outputs] if isinstance(outputs, Tensor) else outputs
    if len(outputs) > len(weights):
        raise FactorizerError(
            f"the model has {len(outputs)} outputs, but there are {len(weights)} weights; give "
            "training.deep_supervision_weights one for each"
        )
    total = torch.zeros((), device=target.device)
    for logits, weight in zip(outputs, weights, strict=False):
        reduced = F.interpolate(target, logits.shape[2:], mode="nearest-exact")
        total = total + weight * region_loss(logits, reduced, epsilon)
    return total
