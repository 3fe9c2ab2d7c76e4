"""Figures of ablations and of tuning."""

from __future__ import annotations

from factorizer.figures.ablations import pareto


def test_the_front() -> None:
    points = [(1.0, 0.8, "a"), (0.5, 0.7, "b"), (0.6, 0.6, "c"), (0.7, 0.9, "d")]
    assert [name for _, _, name in pareto(points)] == ["b", "d"]
