"""Scores of systems that do not exist, for tests of comparisons."""

from __future__ import annotations

import numpy as np

from factorizer.evaluation.compare import Entry
from factorizer.evaluation.scores import Score

REGIONS = ("ET", "WT")


def scores(level: float, seed: int, cases: int = 30, noise: float = 0.02) -> list[Score]:
    """Dice around a level with the difficulty of cases in common, HD95 the other way."""
    difficulty = np.random.default_rng(0).uniform(-0.2, 0.1, cases)
    generator = np.random.default_rng(seed + 1)
    rows = []
    for number, shift in enumerate(difficulty):
        for region in REGIONS:
            dice = float(np.clip(level + shift + generator.normal(0, noise), 0, 1))
            rows.append(Score(f"case{number:02d}", region, "dice", dice))
            rows.append(Score(f"case{number:02d}", region, "hd95_mm", 40 * (1 - dice)))
    return rows


def entries() -> list[Entry]:
    return [
        Entry("good", scores(0.85, 1), 5.9, 174.2),
        Entry("equal", scores(0.85, 2), 28.7, 1152.5),
        Entry("bad", scores(0.70, 3)),
    ]
