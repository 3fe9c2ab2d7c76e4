"""Dice and HD95 against MONAI, scipy and hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from monai.metrics.hausdorff_distance import compute_hausdorff_distance
from monai.metrics.meandice import compute_dice
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from factorizer.evaluation.metrics import dice, hd95_mm, surface


def blobs(seed: int, shape: tuple[int, ...] = (20, 18, 16)) -> np.ndarray:
    field = gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 2)
    return field > field.std()


def directed_95(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> float:
    points = [np.argwhere(surface(mask)) * spacing for mask in (a, b)]
    return float(np.percentile(cdist(*points).min(1), 95))


@pytest.mark.filterwarnings(
    "ignore:monai.metrics.utils get_mask_edges:FutureWarning"
)  # MONAI calls its own old argument
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.9, 1.1, 4.8)])
def test_random_masks_agree_with_others(seed: int, spacing: tuple[float, ...]) -> None:
    a, b = blobs(seed), blobs(seed + 100)
    tensors = [torch.from_numpy(mask)[None, None].float() for mask in (a, b)]
    assert dice(a, b) == pytest.approx(
        compute_dice(*tensors, include_background=True).item(), abs=1e-6
    )
    expected = max(directed_95(a, b, spacing), directed_95(b, a, spacing))
    assert hd95_mm(a, b, spacing) == pytest.approx(expected, abs=1e-9)
    theirs = compute_hausdorff_distance(
        *tensors, include_background=True, percentile=95, spacing=spacing
    ).item()
    assert hd95_mm(a, b, spacing) == pytest.approx(theirs, rel=1e-4)


def test_empty_masks() -> None:
    empty, some = np.zeros((5, 5, 5), bool), blobs(0, (5, 5, 5))
    assert dice(empty, empty) == 1.0
    assert hd95_mm(empty, empty, (1, 1, 1)) == 0.0
    for pair in ((empty, some), (some, empty)):
        assert dice(*pair) == 0.0
        assert np.isnan(hd95_mm(*pair, (1, 1, 1)))


def test_single_voxels_and_true_spacing() -> None:
    a, b = np.zeros((2, 10, 10, 10), bool)
    a[2, 5, 5] = b[5, 5, 9] = True
    assert dice(a, b) == 0.0
    assert hd95_mm(a, b, (2.0, 1.0, 0.5)) == pytest.approx(np.hypot(6, 2))
    assert hd95_mm(a, a, (2.0, 1.0, 0.5)) == 0.0


def test_a_mask_that_touches_the_edge_has_its_surface_there() -> None:
    full = np.ones((4, 4, 4), bool)
    assert np.count_nonzero(surface(full)) == 4**3 - 2**3
    assert hd95_mm(full, full, (1, 1, 1)) == 0.0


def test_2d() -> None:
    a, b = blobs(0, (30, 30)), blobs(1, (30, 30))
    expected = max(directed_95(a, b, (1, 1)), directed_95(b, a, (1, 1)))
    assert hd95_mm(a, b, (1, 1)) == pytest.approx(expected)
