"""A training that fits into a given time: which network, how many steps, how many validations.

This file has the arithmetic. trial.py measures the times on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10, prod
from typing import Any

from factorizer.config import Preset
from factorizer.data.check import Report
from factorizer.data.plan import plan_network
from factorizer.errors import FactorizerError
from factorizer.training.time_left import in_words
from factorizer.words import count

UNITS = {"m": 60, "h": 3600, "d": 86_400}
SHORTEST, LONGEST = 60, 30 * 86_400  # seconds of a budget
RESERVE = 0.05  # the share of the budget that is kept for times that vary
# Width at full resolution, largest patch in voxels, patches per step: from the paper's network to
# one that a laptop trains fast. Patches of 32^3 are left out: on the hippocampus they were 7 points
# of Dice worse in the same time.
LADDER = {
    3: ((32, 64**3, 2), (32, 48**3, 2), (24, 48**3, 2), (16, 48**3, 2), (16, 48**3, 1)),
    2: ((16, 512**2, 2), (16, 256**2, 2), (16, 256**2, 1)),
}
# With so many steps, a larger network gains more than further steps (docs/results/isles22).
ENOUGH_STEPS = 4_000
FEW_STEPS = 500  # with fewer a model is rough
LEAST_STEPS = 20
MOST_STEPS = 100_000  # the paper's
MUON_STEPS = 20_000  # with more, AdamW is chosen as in the paper
OPTIMIZERS = {
    "muon": "learns in fewer steps than AdamW",
    "adamw": "the paper's, for many steps",
}
VALIDATIONS = 4  # at most
VALIDATION_SHARE = 0.1  # of the time, at most
CHECKPOINT_SECONDS = 60
CORE_SECONDS = 5e-7  # that one core takes for a step, per unit of `work_of` (docs/results/speed.md)
LONG = 12 * 3600  # seconds; a longer training on a CPU may be a mistake


class BudgetError(FactorizerError):
    """A time that cannot be planned for."""


@dataclass(frozen=True)
class Timing:
    """Seconds that a candidate takes on this machine, as measured.

    Scoring a case includes reading its file, but not the prediction: the last validation made it.
    """

    step: float
    validating_case: float
    scoring_case: float


@dataclass(frozen=True)
class Chores:
    """What a training does besides its steps: seconds before the first step, and the number of
    held-out cases."""

    starting: float
    preparing: float
    held_out: int


@dataclass(frozen=True)
class Schedule:
    """The steps and validations that fit into a time, and the seconds that each part takes."""

    max_steps: int
    validations: int
    starting: float
    preparing: float
    training: float
    validating: float
    scoring: float

    @property
    def total(self) -> float:
        return self.starting + self.preparing + self.training + self.validating + self.scoring


def parse_budget(text: str) -> float:
    """The seconds of a time such as 90m, 2h or 1.5h."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*([mhd])", text.strip().lower())
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise BudgetError(
            f"budget is {text!r}; give a time from 1m to 30d, such as 90m, 2h or 1.5h"
        )
    return seconds


def candidates(preset: Preset, report: Report) -> list[Preset]:
    """The preset with networks and patches from large to small, without repetition."""
    found: list[Preset] = []
    for width, most_voxels, batch_size in LADDER[len(preset.data.patch_size)]:
        patch, model = plan_network(report, most_voxels=most_voxels, width=width)
        candidate = change(
            preset, data={"patch_size": patch}, model=model, training={"batch_size": batch_size}
        )
        if candidate not in found:
            found.append(candidate)
    return found


def change(
    preset: Preset,
    *,
    data: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Preset:
    """The preset with other values in some fields of its sections."""
    values = preset.model_dump()
    values["data"] |= data or {}
    values["model"] |= model or {}
    values["training"] |= training or {}
    return Preset.model_validate(values)


def describe(preset: Preset) -> str:
    widths = "-".join(map(str, preset.model.widths))
    patch = " x ".join(map(str, preset.data.patch_size))
    return f"widths {widths}, {count(preset.training.batch_size, 'patch', 'patches')} of {patch}"


def work_of(preset: Preset) -> float:
    """The voxels of a batch times the channels at full resolution. Step times grow with it."""
    voxels = preset.training.batch_size * prod(preset.data.patch_size)
    return voxels * float(preset.model.widths[0])


def schedule(timing: Timing, chores: Chores, budget: float) -> Schedule:
    """As many steps as fit into the budget, perhaps none.

    There are up to four validations, as long as they take little of the time.
    """
    validation = timing.validating_case * chores.held_out
    scoring = timing.scoring_case * chores.held_out
    free = budget * (1 - RESERVE) - chores.starting - chores.preparing - scoring
    affordable = floor(VALIDATION_SHARE * max(0.0, free) / max(validation, 1e-9))
    validations = max(1, min(VALIDATIONS, affordable))
    steps = min(MOST_STEPS, round_down((free - validations * validation) / timing.step))
    steps -= steps % validations  # so that the last validation is at the end
    return Schedule(
        max_steps=steps,
        validations=validations,
        starting=chores.starting,
        preparing=chores.preparing,
        training=steps * timing.step,
        validating=validations * validation,
        scoring=scoring,
    )


def round_down(steps: float) -> int:
    """The steps rounded down to two digits: 9,312 becomes 9,300."""
    if steps < 1:
        return 0
    unit = 10 ** max(0, floor(log10(steps)) - 1)
    return floor(steps / unit) * unit


def choose(
    ladder: Sequence[Preset], measure: Callable[[Preset], Timing], chores: Chores, budget: float
) -> tuple[Preset, Schedule, dict[str, Timing]]:
    """The largest candidate that makes enough steps in time, or otherwise the smallest.

    Also returns its schedule and all measured times. The smallest candidate is timed first. Its
    time gives a guess of the largest that makes enough steps. From there the search goes down until
    there are enough steps, or up while there are.
    """
    rising = list(reversed(ladder))
    timings: dict[str, Timing] = {}

    def plan_of(candidate: Preset) -> Schedule:
        name = describe(candidate)
        if name not in timings:
            timings[name] = measure(candidate)
        return schedule(timings[name], chores, budget)

    def is_enough(candidate: Preset) -> bool:
        return plan_of(candidate).max_steps >= ENOUGH_STEPS

    steps = plan_of(rising[0]).max_steps
    place = 0
    for index, candidate in enumerate(rising):
        if steps * work_of(rising[0]) / work_of(candidate) >= ENOUGH_STEPS:
            place = index
    while place > 0 and not is_enough(rising[place]):
        place -= 1
    while place + 1 < len(rising) and is_enough(rising[place]) and is_enough(rising[place + 1]):
        place += 1
    return rising[place], plan_of(rising[place]), timings


def apply_schedule(preset: Preset, plan: Schedule, timing: Timing) -> Preset:
    """The preset with the schedule in its fields."""
    if plan.max_steps < LEAST_STEPS:
        least = (plan.total - plan.training + LEAST_STEPS * 5 * timing.step) / (1 - RESERVE)
        raise BudgetError(
            f"there is only time for {count(plan.max_steps, 'step')}: starting, preparing, "
            f"validating and scoring take about {in_words(plan.total - plan.training)} on this "
            f"machine; give a budget of {least // 60 + 1:.0f}m or more"
        )
    fields: dict[str, Any] = {
        "max_steps": plan.max_steps,
        "checkpoint_every": max(1, min(1_000, round(CHECKPOINT_SECONDS / timing.step))),
        "validate_every": plan.max_steps // plan.validations,
    }
    if plan.max_steps <= MUON_STEPS:
        fields |= {
            "optimizer": "muon",
            "learning_rate": 0.0015,
            "warmup_steps": min(100, plan.max_steps // 10),
        }
    return change(preset, training=fields)


def explain(preset: Preset, plan: Schedule, timings: dict[str, Timing], budget: float) -> list[str]:
    """The reasons for the planned training, one line each."""
    training, chosen = preset.training, timings[describe(preset)]
    enough = plan.max_steps >= ENOUGH_STEPS
    reason = f"the largest that makes {ENOUGH_STEPS:,} steps in time" if enough else "the fastest"
    several = plan.validations > 1
    often = f"{plan.validations} validations, the last" if several else "one validation,"
    lines = [f"tried: {name}: {timing.step:.3g} s per step" for name, timing in timings.items()]
    lines += [
        f"network: {describe(preset)}: {reason}",
        f"max_steps {plan.max_steps:,}: what fits in time at {chosen.step:.3g} s per step, reading "
        "and augmenting patches included",
        f"optimizer {training.optimizer} at {training.learning_rate:g}: "
        f"{OPTIMIZERS[training.optimizer]}",
        f"validate_every {training.validate_every:,}: {often} at the end",
        f"checkpoint_every {training.checkpoint_every:,}: about one checkpoint per minute",
        f"predicted: {in_words(plan.total)} of {in_words(budget)}: starting "
        f"{in_words(plan.starting)}, preparing cases {in_words(plan.preparing)}, training "
        f"{in_words(plan.training)}, validating {in_words(plan.validating)}, scoring "
        f"{in_words(plan.scoring)}; for one fold",
    ]
    if plan.max_steps < FEW_STEPS:
        lines.append(
            f"{count(plan.max_steps, 'step')} make a rough model; more time makes a better one"
        )
    return lines


def warn_of_long_training(preset: Preset, cores: int) -> str:
    """A warning if a training takes days on a CPU, judged by the size of the network. Otherwise
    an empty text."""
    steps = preset.training.max_steps
    seconds = steps * work_of(preset) * CORE_SECONDS / cores
    if seconds < LONG:
        return ""
    return (
        f"training.max_steps is {steps:,}; on this CPU that takes about {in_words(seconds)}, "
        "judged by the size of the network; `factorizer data plan` with a budget of 2h plans a "
        "training that fits into 2 hours"
    )
