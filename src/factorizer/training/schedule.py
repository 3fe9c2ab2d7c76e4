"""The learning rate: a linear rise, then a cosine to zero (Sec. 4.2)."""

from __future__ import annotations

from math import cos, pi


def warmup_for(max_steps: int, wanted: int) -> int:
    """The steps of the rise: as wanted, but at most a tenth of the training."""
    return min(wanted, max_steps // 10)


def rate_factor(step: int, *, max_steps: int, warmup_steps: int) -> float:
    """The factor of the peak learning rate at step 0, 1, ...

    It is (step + 1) / warmup_steps at first, then half a cosine.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, max_steps - warmup_steps)
    return 0.5 * (1 + cos(pi * min(1.0, progress)))
