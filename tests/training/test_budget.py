"""Trainings that fit into a time: the arithmetic with invented timings, and a small real
measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.config import Preset
from factorizer.data.check import CaseSummary, Report
from factorizer.preset_files import load_preset
from factorizer.training import trial
from factorizer.training.budget import (
    ENOUGH_STEPS,
    MOST_STEPS,
    BudgetError,
    Chores,
    Timing,
    apply_schedule,
    candidates,
    choose,
    describe,
    explain,
    parse_budget,
    round_down,
    schedule,
    warn_of_long_training,
    work_of,
)

HOUR = 3600.0
CHORES = Chores(starting=10, preparing=50, held_out=40)
SCAN = CaseSummary("a", (112, 112, 72), (2.0, 2.0, 2.0), {}, {}, {"lesion": 9}, {"lesion": 0.1}, {})
LADDER = candidates(load_preset("isles22"), Report("isles", ("DWI", "ADC"), {"lesion": 1}, [SCAN]))
runner = CliRunner()


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("90m", 5400), ("1.5h", 5400), ("1D", 86_400)]
)
def test_a_budget_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "2", "h", "-2h", "2 weeks", "0.5m", "31d", "nanh", "1e9h", "2h30m", "9" * 400 + "h"],
)
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(BudgetError, match=r"give a time from 1m to 30d, such as 90m, 2h or 1\.5h"):
        parse_budget(text)


def test_candidates_become_smaller() -> None:
    assert len(LADDER) == 5
    work = [work_of(preset) for preset in LADDER]
    assert work == sorted(work, reverse=True)
    assert LADDER[0].model.widths == (32, 64, 128, 256, 512)
    small = Report("msd", ("MRI",), {"a": 1}, [replace(SCAN, shape=(30, 30, 30))])
    assert (
        len(candidates(load_preset("hippocampus"), small)) == 4
    )  # patches of the whole image come once for each width


def test_what_is_scheduled_fits() -> None:
    timing = Timing(step=0.5, validating_case=0.8, scoring_case=1.0)
    plan = schedule(timing, CHORES, HOUR)
    assert plan.max_steps == 6300  # (3420 - 60 - 40 - 4 * 32) / 0.5 = 6384, to two digits
    assert plan.validations == 4
    assert 0.9 * HOUR < plan.total < 0.95 * HOUR
    assert plan.total == pytest.approx(10 + 50 + 3150 + 4 * 32 + 40)


def test_validations_that_take_long_are_fewer() -> None:
    plans = [schedule(Timing(0.5, seconds, 1.0), CHORES, HOUR) for seconds in (0.1, 2.5, 4.0, 20.0)]
    assert [plan.validations for plan in plans] == [4, 3, 2, 1]


def test_there_are_never_more_steps_than_in_the_paper() -> None:
    assert schedule(Timing(0.001, 0.1, 0.1), CHORES, 24 * HOUR).max_steps == MOST_STEPS


@pytest.mark.parametrize(
    ("steps", "rounded"), [(0.3, 0), (7.9, 7), (9312.5, 9300), (99_999, 99_000)]
)
def test_steps_are_rounded_down(steps: float, rounded: int) -> None:
    assert round_down(steps) == rounded


@pytest.mark.parametrize(
    ("seconds_per_work", "place"), [(1e-9, 0), (3e-7, 2), (4e-7, 3), (3e-4, 4)]
)
def test_the_largest_network_that_makes_enough_steps_is_chosen(
    seconds_per_work: float, place: int
) -> None:
    measured: list[Preset] = []

    def measure(preset: Preset) -> Timing:
        measured.append(preset)
        return Timing(work_of(preset) * seconds_per_work, 0.1, 0.2)

    preset, plan, timings = choose(LADDER, measure, CHORES, 2 * HOUR)
    assert preset == LADDER[place]
    assert (plan.max_steps >= ENOUGH_STEPS) == (seconds_per_work < 1e-4)
    assert len(measured) == len(timings) <= 3


def test_a_guess_that_was_wrong_is_corrected() -> None:
    """Large networks are sometimes much slower, sometimes hardly, than their size says."""
    for power, place in ((0.1, 0), (2.2, 2)):

        def measure(preset: Preset, power: float = power) -> Timing:
            return Timing(0.1 * (work_of(preset) / work_of(LADDER[-1])) ** power, 0.1, 0.2)

        assert choose(LADDER, measure, CHORES, 2 * HOUR)[0] == LADDER[place]


def test_few_steps_are_made_with_muon_and_many_as_in_the_paper() -> None:
    for step, optimizer, rate, warmup in ((0.5, "muon", 0.0015, 100), (0.05, "adamw", 1e-4, 2000)):
        timing = Timing(step, 0.1, 0.2)
        plan = schedule(timing, CHORES, 2 * HOUR)
        training = apply_schedule(LADDER[0], plan, timing).training
        assert (training.optimizer, training.learning_rate, training.warmup_steps) == (
            optimizer,
            rate,
            warmup,
        )
        assert training.max_steps == plan.max_steps
        assert training.max_steps == training.validate_every * plan.validations
        assert training.checkpoint_every == min(1000, 60 / step)


def test_a_time_that_is_too_short_is_refused_with_one_that_is_not() -> None:
    timing = Timing(1.0, 2.0, 3.0)
    with pytest.raises(
        BudgetError, match=r"only time for 0 steps: .* take about 4 min .* give a budget of 7m"
    ) as error:
        apply_schedule(LADDER[-1], schedule(timing, CHORES, 180), timing)
    minutes = int(str(error.value).split("budget of ")[1].split("m")[0])
    apply_schedule(LADDER[-1], schedule(timing, CHORES, 60 * minutes), timing)


def test_reasons_are_given() -> None:
    timing = Timing(0.5, 0.8, 1.0)
    plan = schedule(timing, CHORES, HOUR)
    preset = apply_schedule(LADDER[3], plan, timing)
    text = "\n".join(explain(preset, plan, {describe(LADDER[3]): timing}, HOUR))
    assert "tried: widths 16-32-64-128, 2 patches of 48 x 48 x 48: 0.5 s per step" in text
    assert "max_steps 6,300: what fits in time at 0.5 s per step" in text
    assert "muon at 0.0015" in text
    assert (
        "predicted: 56 min of 60 min: starting 10 s, preparing cases 50 s, training 52 min" in text
    )


@pytest.mark.slow
def test_a_plan_for_a_budget_is_measured_and_explained(
    strokes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(trial, "WORKERS", 0)
    monkeypatch.setattr("factorizer.training.budget.LADDER", {3: ((16, 24**3, 1), (8, 16**3, 1))})
    file = tmp_path / "plan.yaml"
    command = ["data", "plan", str(strokes), "-o", str(file), "--budget", "10m", "--device", "cpu"]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    preset = load_preset(file)
    assert preset.training.optimizer == "muon"
    assert preset.training.max_steps >= 20
    assert "timing widths 8-" in result.stderr
    for part in (
        "DWI: taken for MRI",
        "measured on this CPU",
        "s per step",
        "predicted: ",
        "memory: about",
    ):
        assert part in result.stdout


def test_a_budget_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for options, message in (
        (["--budget", "soon"], "budget is 'soon'"),
        (["--device", "cpu"], "give both or neither"),
    ):
        command = [
            "data",
            "plan",
            str(tmp_path / "nowhere"),
            "-o",
            str(tmp_path / "a.yaml"),
            *options,
        ]
        result = runner.invoke(app, command)
        assert result.exit_code == 2
        assert message in result.stderr


def test_a_training_of_days_is_announced() -> None:
    warning = warn_of_long_training(load_preset("isles22"), cores=2)
    assert "training.max_steps is 100,000; on this CPU that takes about 4 days 21 h" in warning
    assert "`factorizer data plan` with a budget of 2h" in warning
    assert warn_of_long_training(load_preset("isles22"), cores=64) == ""


@pytest.mark.parametrize("name", ["isles22-small", "hippocampus", "chasedb1"])
def test_a_training_of_hours_is_not(name: str) -> None:
    assert warn_of_long_training(load_preset(name), cores=2) == ""


@pytest.mark.parametrize("command", ["train", "cross-validate"])
def test_the_command_announces_it_first(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    options = ["--preset", "isles22", "--data", str(tmp_path / "nowhere"), "--device", "cpu"]
    result = runner.invoke(app, [command, *options, "--output", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert result.stderr.startswith("training.max_steps is 100,000; on this CPU that takes about")
