"""A training that fits into a given time: which network, how many steps, how often to validate.

Here is the arithmetic; trial.py measures what it needs on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10, prod
from pathlib import Path
from typing import Any

from factorizer.config import Preset
from factorizer.data.check import Report
from factorizer.data.plan import plan_network
from factorizer.errors import FactorizerError
from factorizer.training.time_left import in_words
from factorizer.words import count

UNITS = {"m": 60, "h": 3600, "d": 86_400}
SHORTEST, LONGEST = 60, 30 * 86_400  # seconds of a budget
RESERVE = 0.05  # of the budget, for what varies
# width at full resolution, largest patch in voxels, patches per step: from the paper's to what a
# laptop trains fast.
# Patches of 32^3 are not in it: on the hippocampus they were 7 points of Dice worse in the same
# time.
LADDER = {
    3: ((32, 64**3, 2), (32, 48**3, 2), (24, 48**3, 2), (16, 48**3, 2), (16, 48**3, 1)),
    2: ((16, 512**2, 2), (16, 256**2, 2), (16, 256**2, 1)),
}
ENOUGH_STEPS = (
    4_000  # from which a larger network is worth more than further steps (docs/results/isles22)
)
FEW_STEPS = 500  # below which a model is rough
LEAST_STEPS = 20
MOST_STEPS = 100_000  # the paper's
MUON_STEPS = 20_000  # up to which Muon is chosen
VALIDATIONS, VALIDATION_SHARE = 4, 0.1  # at most, and of the time
CHECKPOINT_SECONDS = 60
GIB = 2**30
CORE_SECONDS = 5e-7  # of one core for a step, per unit of `work_of` (docs/results/speed.md)
LONG = 12 * 3600  # seconds from which a training on a CPU may be a mistake


class BudgetError(FactorizerError):
    """A time that cannot be planned for."""


@dataclass(frozen=True)
class Timing:
    """Seconds that a candidate takes on this machine, as measured."""

    step: float
    validating_case: float
    scoring_case: float  # from its file; the last validation has predicted it


@dataclass(frozen=True)
class Chores:
    """What a training does beside its steps: seconds before the first, and the cases that are held
    out."""

    starting: float
    preparing: float
    held_out: int


@dataclass(frozen=True)
class Schedule:
    """Steps and validations that fit into a time, and the seconds that each part will take."""

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
    """90m, 2h or 1.5h in seconds."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*([mhd])", text.strip().lower())
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise BudgetError(
            f"--budget got {text!r}; give a time from 1m to 30d, such as 90m, 2h or 1.5h"
        )
    return seconds


def candidates(preset: Preset, report: Report) -> list[Preset]:
    """The preset with networks and patches from large to small, each once."""
    found: list[Preset] = []
    for width, most_voxels, batch_size in LADDER[len(preset.data.patch_size)]:
        patch, model = plan_network(report, most_voxels=most_voxels, width=width)
        candidate = change(
            preset, data={"patch_size": patch}, model=model, training={"batch_size": batch_size}
        )
        if candidate not in found:
            found.append(candidate)
    return found


def change(preset: Preset, **sections: dict[str, Any]) -> Preset:
    """The preset with other values in some fields of its sections."""
    values = preset.model_dump()
    for section, fields in sections.items():
        values[section] |= fields
    return Preset.model_validate(values)


def describe(preset: Preset) -> str:
    widths = "-".join(map(str, preset.model.widths))
    patch = " x ".join(map(str, preset.data.patch_size))
    return f"widths {widths}, {count(preset.training.batch_size, 'patch', 'patches')} of {patch}"


def work_of(preset: Preset) -> float:
    """What the time of a step grows with: voxels of a batch times channels at full resolution."""
    return preset.training.batch_size * prod(preset.data.patch_size) * float(preset.model.widths[0])


def schedule(timing: Timing, chores: Chores, budget: float) -> Schedule:
    """As many steps as fit, with up to four validations where they take little of the time; 0 where
    none fits."""
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
    """To two digits: 9,312 is 9,300."""
    if steps < 1:
        return 0
    unit = 10 ** max(0, floor(log10(steps)) - 1)
    return floor(steps / unit) * unit


def choose(
    ladder: Sequence[Preset], measure: Callable[[Preset], Timing], chores: Chores, budget: float
) -> tuple[Preset, Schedule, dict[str, Timing]]:
    """The largest candidate that makes enough steps in time, or the smallest; with all that was
    measured.

    The smallest is timed first. The largest that may do, by a guess from its time, is next; from
    there it goes up while there are enough steps, or down until there are.
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
    guesses = [steps * work_of(rising[0]) / work_of(candidate) for candidate in rising]
    place = max([0, *(index for index, guess in enumerate(guesses) if guess >= ENOUGH_STEPS)])
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
            f"there is time for {count(plan.max_steps, 'step')} only: starting, preparing, "
            f"validating and scoring take about {in_words(plan.total - plan.training)} on this "
            f"machine; give --budget {least // 60 + 1:.0f}m or more"
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
    """Why the training is planned so, a line each."""
    training, chosen = preset.training, timings[describe(preset)]
    lines = [f"tried: {name}: {timing.step:.3g} s per step" for name, timing in timings.items()]
    enough = plan.max_steps >= ENOUGH_STEPS
    reason = f"the largest that makes {ENOUGH_STEPS:,} steps in time" if enough else "the fastest"
    lines.append(f"network: {describe(preset)}: {reason}")
    lines.append(
        f"max_steps {plan.max_steps:,}: what fits in time at {chosen.step:.3g} s per step, reading "
        "and augmenting patches included"
    )
    if training.optimizer == "muon":
        lines.append(
            f"optimizer muon at {training.learning_rate:g}: learns in fewer steps than AdamW"
        )
    else:
        lines.append(
            f"optimizer {training.optimizer} at {training.learning_rate:g}: the paper's, for many "
            "steps"
        )
    often = (
        f"{plan.validations} validations, the last" if plan.validations > 1 else "one validation,"
    )
    lines.append(f"validate_every {training.validate_every:,}: {often} at the end")
    lines.append(f"checkpoint_every {training.checkpoint_every:,}: about one checkpoint per minute")
    lines.append(
        f"predicted: {in_words(plan.total)} of {in_words(budget)}: starting "
        f"{in_words(plan.starting)}, preparing cases {in_words(plan.preparing)}, training "
        f"{in_words(plan.training)}, validating {in_words(plan.validating)}, scoring "
        f"{in_words(plan.scoring)}; for one fold"
    )
    if plan.max_steps < FEW_STEPS:
        lines.append(
            f"{count(plan.max_steps, 'step')} make a rough model; with more time it becomes better"
        )
    return lines


def warn_of_long_training(preset: Preset, data: Path, cores: int) -> str:
    """What to know before a training that takes days on a CPU, going by the network's size; ""
    otherwise."""
    steps = preset.training.max_steps
    seconds = steps * work_of(preset) * CORE_SECONDS / cores
    if seconds < LONG:
        return ""
    return (
        f"training.max_steps is {steps:,}; on this CPU that takes about {in_words(seconds)}, going "
        "by the size of the network; for one that fits into 2 hours plan with `factorizer data "
        f"plan {data} -o my.yaml --budget 2h`"
    )
