"""How long a training still takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.training.time_left import TimeLeft, in_words
from testkit.runs import CHANGES

runner = CliRunner()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (91, "1 min 30 s"),
        (241, "4 min"),
        (597, "10 min"),
        (3599, "60 min"),
        (7500, "2 h 5 min"),
        (7200, "2 h"),
        (273_600, "3 days 4 h"),
    ],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def time_left(**changes: int) -> TimeLeft:
    options = {"step": 0, "max_steps": 100, "validate_every": 50, "batch_size": 2, "patches": 40}
    return TimeLeft(**(options | changes))


def test_the_time_left_ignores_the_slow_first_steps() -> None:
    left = time_left(patches=0)
    assert left.text() == ""
    for step, now in ((1, 30.0), (2, 40.0), (3, 45.0), (4, 46.0), (5, 47.0)):
        left.end_step(step, now)
    assert left.seconds() == pytest.approx(95)
    assert left.text() == "about 1 min 40 s left"


def test_validations_and_scoring_are_counted_before_and_after_they_were_seen() -> None:
    left = time_left()
    for step in range(1, 11):
        left.end_step(step, float(step))
    guess = 40 * 0.3 * 1.0 / 2
    assert left.seconds() == pytest.approx(90 + 2 * guess)
    for step in range(11, 51):
        left.end_step(step, float(step))
    left.end_validation(20.0)
    left.end_step(51, 71.0)
    assert left.step_seconds == pytest.approx(1.0)  # the validation is no part of the step
    assert left.seconds() == pytest.approx(49 + 20)


def test_scores_that_no_validation_makes_take_as_long_as_one() -> None:
    left = time_left(validate_every=60)
    left.end_validation(20.0)
    for step, now in ((61, 1.0), (62, 2.0)):
        left.end_step(step, now)
    assert left.seconds() == pytest.approx(38 + 20)


def test_a_resumed_run_and_parts_of_a_step() -> None:
    left = time_left(step=60, patches=0)
    for now, step in enumerate((60, 61, 61, 62, 62, 63, 63, 64, 64, 65)):
        left.end_step(step, float(now))
    assert left.seconds() == pytest.approx(35 * 2)


@pytest.mark.slow
def test_the_time_left_is_printed_where_there_is_no_terminal(
    strokes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("factorizer.bars.FIRST_LINE", 0)
    monkeypatch.setattr("factorizer.bars.LINE_EVERY", 0)
    changes = [part for change in CHANGES for part in ("--set", change)]
    command = [
        "train",
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--output",
        str(tmp_path / "run"),
        *changes,
    ]
    result = runner.invoke(
        app, [*command, "--workers", "0", "--device", "cpu", "--accumulate", "2"]
    )
    assert result.exit_code == 0, result.output
    said = [line for line in result.stderr.splitlines() if line.startswith("training: ")]
    lines = {line.split("  ")[0]: line for line in said}
    assert list(lines) == [f"training: {step} of 6" for step in range(7)]
    assert "left" not in lines["training: 3 of 6"]  # the first steps are slow
    assert " samples/s  about " in lines["training: 5 of 6"]
    assert lines["training: 5 of 6"].endswith(" s left")
