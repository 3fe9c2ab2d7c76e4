"""Figures of ablations and of tuning."""

from __future__ import annotations

from factorizer.figures.ablations import Timed, pareto


def test_the_front() -> None:
    settings = [
        Timed("slow and good", 1.0, 0.8),
        Timed("fast", 0.5, 0.7),
        Timed("slower and worse than fast", 0.6, 0.6),
        Timed("best", 0.7, 0.9),
    ]
    assert [setting.name for setting in pareto(settings)] == ["fast", "best"]
