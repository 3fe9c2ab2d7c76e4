"""Times of a network beside another."""

from __future__ import annotations

import numpy as np
import pytest

from factorizer.studies.bench import make_timing


def test_times_are_compared_round_by_round() -> None:
    """Rounds that are slow for both do not matter; the interval says how certain a saving is."""
    slow = np.array([1.0, 5.0, 1.0, 2.0, 1.0, 1.0])
    timing = make_timing(0.8 * slow, slow)
    assert (timing.ratio, timing.low, timing.high) == pytest.approx((0.8, 0.8, 0.8))
    noisy = make_timing(0.97 * slow, slow[::-1])
    assert noisy.low < 0.97 < 1 < noisy.high
