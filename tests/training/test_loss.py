"""The loss against values computed by hand, and against MONAI's where that means the same."""

from __future__ import annotations

from math import log

import pytest
import torch
from monai.losses.dice import DiceLoss

from factorizer.training.loss import region_loss, soft_dice_loss, supervised_loss

EPSILON = 1e-5


def logit(p: float) -> float:
    return log(p / (1 - p))


def test_dice_by_hand() -> None:
    """Two voxels with p = 0.8, 0.4 and g = 1, 0: 1 - 2 (0.8) / (0.64 + 0.16 + 1)."""
    logits = torch.tensor([[[logit(0.8), logit(0.4)]]], dtype=torch.float64)
    target = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    expected = 1 - (1.6 + EPSILON) / (1.8 + EPSILON)
    assert soft_dice_loss(logits, target, EPSILON).item() == pytest.approx(expected, abs=1e-12)


def test_cross_entropy_by_hand() -> None:
    """It punishes false positives too, which the printed formula does not."""
    logits = torch.tensor([[[logit(0.8), logit(0.4)]]])
    target = torch.tensor([[[1.0, 0.0]]])
    dice = soft_dice_loss(logits, target, EPSILON)
    expected = -(log(0.8) + log(0.6)) / 2
    assert (region_loss(logits, target, EPSILON) - dice).item() == pytest.approx(expected, abs=1e-6)


def test_dice_is_per_sample_and_region_then_the_mean() -> None:
    logits = torch.randn(3, 2, 4, 4, 4, dtype=torch.float64)
    target = (torch.rand(3, 2, 4, 4, 4) > 0.7).double()
    single = [
        soft_dice_loss(logits[i, j][None, None], target[i, j][None, None], EPSILON)
        for i in range(3)
        for j in range(2)
    ]
    torch.testing.assert_close(soft_dice_loss(logits, target, EPSILON), torch.stack(single).mean())
    theirs = DiceLoss(sigmoid=True, squared_pred=True, smooth_nr=EPSILON, smooth_dr=EPSILON)
    torch.testing.assert_close(soft_dice_loss(logits, target, EPSILON), theirs(logits, target))


def test_an_empty_target_is_not_a_division_by_zero() -> None:
    logits = torch.full((1, 1, 8), -50.0, requires_grad=True)
    loss = region_loss(logits, torch.zeros(1, 1, 8), EPSILON)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_deep_supervision_sums_with_weights_and_shrinks_targets_by_nearest_neighbour() -> None:
    target = torch.zeros(1, 1, 4, 4, 4)
    target[..., :2, :2, :2] = 1
    outputs = [torch.randn(1, 1, n, n, n) for n in (4, 2)]
    small = torch.zeros(1, 1, 2, 2, 2)
    small[..., 0, 0, 0] = 1
    expected = region_loss(outputs[0], target, EPSILON) + 0.5 * region_loss(
        outputs[1], small, EPSILON
    )
    loss = supervised_loss(outputs, target, weights=(1.0, 0.5, 0.25), epsilon=EPSILON)
    torch.testing.assert_close(loss, expected)
    alone = supervised_loss(outputs[0], target, weights=(1.0, 0.5, 0.25), epsilon=EPSILON)
    torch.testing.assert_close(alone, region_loss(outputs[0], target, EPSILON))


def test_too_few_weights_are_named() -> None:
    outputs = [torch.zeros(1, 1, 4), torch.zeros(1, 1, 2)]
    with pytest.raises(ValueError, match="the model has 2 outputs, but there are 1 weights"):
        supervised_loss(outputs, torch.zeros(1, 1, 4), weights=(1.0,), epsilon=EPSILON)


def test_half_precision_is_computed_in_full() -> None:
    logits, target = torch.randn(1, 1, 100_000), (torch.rand(1, 1, 100_000) > 0.5).float()
    half = region_loss(logits.bfloat16(), target.bfloat16(), EPSILON)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, region_loss(logits.bfloat16().float(), target, EPSILON))
