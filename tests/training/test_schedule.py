"""The learning rate by hand."""

from __future__ import annotations

import pytest

from factorizer.training.schedule import rate_factor, warmup_for


def test_the_papers_schedule() -> None:
    factors = {
        step: rate_factor(step, max_steps=100_000, warmup_steps=2_000)
        for step in (0, 999, 1_999, 51_000, 99_999)
    }
    assert factors[0] == 1 / 2_000
    assert factors[999] == 0.5
    assert factors[1_999] == 1.0
    assert factors[51_000] == pytest.approx(0.5)
    assert 0 < factors[99_999] < 1e-8
    assert rate_factor(100_000, max_steps=100_000, warmup_steps=2_000) == 0


def test_it_rises_then_falls() -> None:
    factors = [rate_factor(step, max_steps=200, warmup_steps=20) for step in range(200)]
    assert factors[:20] == sorted(factors[:20])
    assert factors[20:] == sorted(factors[20:], reverse=True)
    assert max(factors) == 1.0


def test_a_short_run_has_a_short_warm_up() -> None:
    assert warmup_for(100_000, 2_000) == 2_000
    assert warmup_for(1_000, 2_000) == 100
    assert warmup_for(5, 2_000) == 0
    assert rate_factor(0, max_steps=5, warmup_steps=0) == 1.0
