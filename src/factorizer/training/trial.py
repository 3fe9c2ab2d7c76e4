"""The time that training takes on this machine, measured on a few cases.

Preparing cases, training steps, validation and scoring are timed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from factorizer.config import Preset
from factorizer.config.networks import network_of
from factorizer.data.cache import CaseStore, preparation_for
from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.check import Report
from factorizer.data.images import canonical_grid, read_label
from factorizer.data.plan import Plan
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.hardware import GIB, available_cores, choose_device, device_bytes
from factorizer.inference.predictor import Predictor
from factorizer.progress import SILENT, Progress
from factorizer.training.budget import (
    BudgetError,
    Chores,
    Timing,
    apply_schedule,
    candidates,
    choose,
    describe,
    explain,
    work_of,
)
from factorizer.training.loss import supervised_loss
from factorizer.training.optimizer import make_optimizer
from factorizer.training.stream import make_patches
from factorizer.training.time_left import SLOW_STEPS
from factorizer.words import count

WORKERS = 2  # the default of `Machine`
SAMPLE = 8  # cases
LEAST_STEPS = 4  # that are timed
MOST_STEPS = 200
MOST_SECONDS = 10.0  # for the steps of a candidate, for its predictions, and for preparing
STARTING_SECONDS = 10.0  # for imports, workers and the last files
BASE_BYTES = 1.5 * GIB  # for Python and PyTorch, here and in the workers
MAPS = 24  # feature maps of full resolution and least width that a training step holds, about
SAFE = 0.8  # the share of the free memory that is used
BUSY = 0.5  # a load per core by other programs that is worth a remark


def plan_with_budget(
    plan: Plan,
    cohort: Cohort,
    report: Report,
    *,
    budget: float,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Plan:
    """The plan with the network and the training that fit into a time on this machine.

    Args:
        plan: What `plan_preset` planned for the data set.
        cohort: The data set.
        report: What `check_cohort` found in it.
        budget: The time in seconds, for one fold.
        device: The device that it will be trained on: auto, cpu, cuda or mps.
        progress: Where lines and bars go.
    """
    chosen = choose_device(device)
    ladder = candidates_that_fit(plan.preset, report, chosen)
    measured_on = describe_machine(chosen)
    with (
        tempfile.TemporaryDirectory(prefix="factorizer-trial-") as folder,
        progress.task("measuring") as task,
    ):
        task.update(label="preparing a few cases")
        trial = Trial(plan.preset, cohort, report, Path(folder), chosen)

        def measure(preset: Preset) -> Timing:
            task.update(label=f"timing {describe(preset)}")
            return trial.time(preset, seconds=min(MOST_SECONDS, budget / 20))

        preset, schedule, timings = choose(ladder, measure, trial.chores, budget)
    planned = apply_schedule(preset, schedule, timings[describe(preset)])
    reasons = explain(planned, schedule, timings, budget)
    needed, usable = training_bytes(planned) / GIB, free(chosen) / GIB
    memory = f"memory: about {needed:.1f} GiB of {usable:.1f} GiB"
    return Plan(planned, (*plan.reasons, measured_on, *reasons, memory))


def candidates_that_fit(preset: Preset, report: Report, device: torch.device) -> list[Preset]:
    """The candidates that fit into memory, from large to small."""
    every, usable = candidates(preset, report), free(device)
    fitting = [candidate for candidate in every if training_bytes(candidate) < usable]
    if not fitting:
        needed = training_bytes(every[-1]) / GIB
        raise BudgetError(
            f"the smallest network needs about {needed:.1f} GiB of memory, and "
            f"{usable / GIB:.1f} GiB can be used; close other programs, or use a larger machine"
        )
    return fitting


class Trial:
    """A few prepared cases of a data set. Candidates are timed on them.

    All candidates prepare cases in the same way.
    """

    def __init__(
        self, preset: Preset, cohort: Cohort, report: Report, folder: Path, device: torch.device
    ) -> None:
        self.cohort = cohort
        self.device = device
        self.preparation = preparation_for(cohort, preset.data)
        readable = {case.name for case in report.cases}
        labelled = [case.name for case in cohort.labelled if case.name in readable]
        if not labelled:
            remedy = "add labels, or plan without a budget"
            raise DataError(Problem("", str(cohort.root), "no case has a label", remedy))
        self.store = CaseStore(folder, cohort.cases, self.preparation)
        self.names, per_case = self.prepare(spread_out(labelled, SAMPLE))
        held_out = ceil(len(labelled) / preset.training.folds)
        self.chores = Chores(STARTING_SECONDS, per_case * len(labelled), held_out)

    def prepare(self, names: Sequence[str]) -> tuple[list[str], float]:
        """The cases that could be prepared in a short time, and the seconds for each.

        As many are prepared at a time as in a training.
        """
        started, done, remaining = time.perf_counter(), 0, iter(names)
        problems: list[Problem] = []
        while group := list(islice(remaining, available_cores())):
            problems += self.store.prepare(group)
            done += len(group)
            if time.perf_counter() - started > MOST_SECONDS:
                break
        if not self.store.entries:
            raise DataError(*problems)
        return sorted(self.store.entries), (time.perf_counter() - started) / done

    def time(self, preset: Preset, *, seconds: float) -> Timing:
        """Time training steps on patches, and predictions of a few whole cases."""
        network = network_of(preset).to(self.device)
        step = mean_seconds(self.steps(preset, network), seconds)
        validating, scoring = self.time_cases(preset, network, seconds)
        return Timing(step, validating, scoring)

    def steps(self, preset: Preset, network: nn.Module) -> Iterator[object]:
        """Make one training step after another, with the slower optimizer of the two."""
        training = preset.training
        patches = make_patches(preset, self.store, self.names, SLOW_STEPS + MOST_STEPS)
        optimizer = make_optimizer(
            "muon", network, learning_rate=1e-6, weight_decay=training.weight_decay
        )
        network.train()
        for batch in DataLoader(patches, batch_size=training.batch_size, num_workers=WORKERS):
            self.make_step(preset, network, optimizer, batch["image"], batch["target"])
            yield batch["case"]

    def make_step(
        self,
        preset: Preset,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        image: Tensor,
        target: Tensor,
    ) -> None:
        training = preset.training
        loss = supervised_loss(
            network(image.to(self.device)),
            target.to(self.device),
            weights=training.deep_supervision_weights,
            epsilon=training.dice_epsilon,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()  # waits for a GPU

    def time_cases(self, preset: Preset, network: nn.Module, seconds: float) -> tuple[float, float]:
        """Seconds to predict a case, and seconds to read and score it."""
        predictor = Predictor(preset, [network], device=self.device)
        predicting: list[float] = []
        scoring: list[float] = []
        for name in spread_out(self.names, 3):
            started = time.perf_counter()
            image = torch.tensor(self.store.open(name)[0])
            predictor.sliding.probabilities(predictor.network, image)
            predicted = time.perf_counter()
            self.score(self.cohort.case(name), predictor)
            predicting.append(predicted - started)
            scoring.append(time.perf_counter() - predicted)
            if sum(predicting) + sum(scoring) > seconds:
                break
        return fmean(predicting), fmean(scoring)

    def score(self, case: Case, predictor: Predictor) -> None:
        """Score the reference, moved by a voxel, against itself.

        The masks of a network that has learned nothing would take longer to score.
        """
        data = predictor.preset.data
        grid = predictor.prepare(case, self.preparation.channels).frame.grid
        reference = read_label(case, self.preparation.label_values, grid)
        score_label_maps(
            case.name,
            np.roll(reference, 1, axis=0),
            reference,
            targets=data.targets,
            spacing_mm=canonical_grid(grid).spacing_mm,
        )


def mean_seconds(steps: Iterator[object], seconds: float) -> float:
    """The mean time of a step, over so many seconds and at least `LEAST_STEPS`.

    The first steps are slow and do not count.
    """
    for _ in islice(steps, SLOW_STEPS):
        pass
    started, done = time.perf_counter(), 0
    for done, _ in enumerate(steps, start=1):
        if done >= LEAST_STEPS and time.perf_counter() - started > seconds:
            break
    return (time.perf_counter() - started) / done


def spread_out(names: Sequence[str], most: int) -> list[str]:
    """At most so many of the names, from the first to the last at equal distances."""
    if len(names) <= most:
        return list(names)
    places = np.linspace(0, len(names) - 1, most)
    return [names[int(place)] for place in places]


def training_bytes(preset: Preset) -> float:
    """The memory that training needs: a rough upper bound."""
    return BASE_BYTES + MAPS * 4 * work_of(preset)


def free(device: torch.device) -> float:
    """The memory that a training may use."""
    return SAFE * device_bytes(device)


def describe_machine(device: torch.device) -> str:
    """Where the times are measured, and whether other programs make them longer."""
    if device.type != "cpu":
        return f"measured on {device.type}, with {WORKERS} workers"
    text = f"measured on this CPU, {count(torch.get_num_threads(), 'thread')}"
    load = 0.0
    with suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
    if load > BUSY * available_cores():
        text += f"; other programs use it too (load {load:.1f}), without them it is faster"
    return text
