"""What training takes on this machine, measured on a few cases: preparing, steps, validation,
scoring, memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from factorizer.config import Preset, build_options
from factorizer.data.cache import CaseStore, settings_for
from factorizer.data.cases import Case, Cohort, DataError, Problem
from factorizer.data.check import Report
from factorizer.data.images import canonical_grid, read_label
from factorizer.data.plan import Plan
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.hardware import available_cores, choose_device, usable_bytes
from factorizer.inference.predictor import Predictor
from factorizer.models.build import build_network
from factorizer.training.budget import (
    GIB,
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
from factorizer.training.module import make_patches
from factorizer.training.optimizer import make_optimizer
from factorizer.training.time_left import SLOW_STEPS
from factorizer.words import count

Tell = Callable[[str], object]
WORKERS = 2  # what `factorizer train` has unless told otherwise
SAMPLE = 8  # cases
LEAST_STEPS, MOST_STEPS = 4, 200  # that are timed
MOST_SECONDS = 10.0  # for the steps of a candidate, for its predictions, and for preparing
STARTING_SECONDS = 10.0  # imports, workers, the last files
BASE_BYTES = 1.5 * GIB  # Python and PyTorch, here and in the workers
MAPS = 24  # feature maps of full resolution and least width that a training step holds, about
SAFE = 0.8  # of the free memory
BUSY = 0.5  # tasks of other programs per core


def plan_for_budget(
    plan: Plan,
    cohort: Cohort,
    report: Report,
    *,
    budget: float,
    device: str = "auto",
    tell: Tell = lambda text: None,
) -> Plan:
    """The plan with the network and the training that fit into `budget` seconds on this machine."""
    chosen_device = choose_device(device)
    reasons = [describe_machine(chosen_device)]
    ladder = [
        preset
        for preset in candidates(plan.preset, report)
        if training_bytes(preset) < free(chosen_device)
    ]
    if not ladder:
        smallest = candidates(plan.preset, report)[-1]
        wanted, there = training_bytes(smallest) / GIB, free(chosen_device) / GIB
        raise BudgetError(
            f"the smallest network takes about {wanted:.1f} GiB, and {there:.1f} GiB can be used"
        )
    with tempfile.TemporaryDirectory(prefix="factorizer-trial-") as folder:
        tell("preparing a few cases")
        trial = Trial(plan.preset, cohort, report, Path(folder), chosen_device)

        def measure(preset: Preset) -> Timing:
            tell(f"timing {describe(preset)}")
            return trial.time(preset, seconds=min(MOST_SECONDS, budget / 20))

        preset, schedule, timings = choose(ladder, measure, trial.chores, budget)
    planned = apply_schedule(preset, schedule, timings[describe(preset)])
    reasons += explain(planned, schedule, timings, budget)
    reasons.append(
        f"memory: about {training_bytes(planned) / GIB:.1f} GiB of {free(chosen_device) / GIB:.1f} "
        "GiB"
    )
    return Plan(planned, (*plan.reasons, *reasons))


class Trial:
    """A few prepared cases of a data set, on which candidates are timed. All of them prepare cases
    the same way."""

    def __init__(
        self, preset: Preset, cohort: Cohort, report: Report, folder: Path, device: torch.device
    ) -> None:
        self.cohort, self.device = cohort, device
        self.settings = settings_for(cohort, preset.data)
        readable = {case.name for case in report.cases}
        labelled = [case.name for case in cohort.labelled if case.name in readable]
        if not labelled:
            problem = Problem(
                "", str(cohort.root), "no case has a label", "add labels, or plan without --budget"
            )
            raise DataError(problem)
        self.store = CaseStore(folder, cohort.cases, self.settings)
        self.names, per_case = self.prepare(spread_out(labelled, SAMPLE))
        held_out = ceil(len(labelled) / preset.training.folds)
        self.chores = Chores(STARTING_SECONDS, per_case * len(labelled), held_out)

    def prepare(self, names: Sequence[str]) -> tuple[list[str], float]:
        """The cases that could be prepared in a short time, and the seconds for each, as many at a
        time as in a run."""
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
        """Steps with real patches of real cases, and predictions of a few whole ones."""
        options = build_options(preset, preset.model.name)
        network = build_network(preset.model.name, options, seed=preset.training.seed)
        network.to(self.device)
        step = mean_seconds(self.steps(preset, network), seconds)
        validating, scoring = self.time_cases(preset, network, seconds)
        return Timing(step, validating, scoring)

    def steps(self, preset: Preset, network: nn.Module) -> Iterator[object]:
        """Make one training step after another, as `factorizer train` does."""
        training = preset.training
        patches = make_patches(preset, self.store, self.names, SLOW_STEPS + MOST_STEPS)
        slower = "muon"  # of the two
        optimizer = make_optimizer(
            slower, network, learning_rate=1e-6, weight_decay=training.weight_decay
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
        """Seconds to predict a case, and to read and score it.

        What is scored is the reference moved by a voxel: the masks of a network that has learned
        nothing take longer.
        """
        predictor = Predictor(preset, [network], device=self.device)
        started, predicting, scoring, done = time.perf_counter(), 0.0, 0.0, 0
        for name in spread_out(self.names, 3):
            begun = time.perf_counter()
            image = torch.tensor(self.store.open(name)[0])
            predictor.sliding.probabilities(predictor.network, image)
            predicted = time.perf_counter()
            self.score(self.cohort.case(name), predictor)
            predicting += predicted - begun
            scoring += time.perf_counter() - predicted
            done += 1
            if time.perf_counter() - started > seconds:
                break
        return predicting / done, scoring / done

    def score(self, case: Case, predictor: Predictor) -> None:
        data = predictor.preset.data
        grid = predictor.prepare(case, self.settings.channels).frame.grid
        reference = read_label(case, self.settings.label_values, grid)
        score_label_maps(
            case.name,
            np.roll(reference, 1, axis=0),
            reference,
            targets=data.targets,
            spacing_mm=canonical_grid(grid).spacing_mm,
        )


def mean_seconds(steps: Iterator[object], seconds: float) -> float:
    """Of one step, after the slow first ones: over so many seconds, or at least `LEAST_STEPS`."""
    for _ in islice(steps, SLOW_STEPS):
        pass
    started, done = time.perf_counter(), 0
    for done, _ in enumerate(steps, start=1):
        if done >= LEAST_STEPS and time.perf_counter() - started > seconds:
            break
    return (time.perf_counter() - started) / done


def spread_out(names: Sequence[str], most: int) -> list[str]:
    """So many of the names, from the first to the last at equal distances."""
    if len(names) <= most:
        return list(names)
    places = np.linspace(0, len(names) - 1, most)
    return [names[int(place)] for place in places]


def training_bytes(preset: Preset) -> float:
    """Memory that training takes, at most, about."""
    return BASE_BYTES + MAPS * 4 * work_of(preset)


def free(device: torch.device) -> float:
    """Memory that a training may take."""
    if device.type == "cuda":
        return SAFE * torch.cuda.mem_get_info(device)[0]
    return SAFE * usable_bytes()


def describe_machine(device: torch.device) -> str:
    """What the times are for, and whether other programs make them longer."""
    if device.type != "cpu":
        return f"measured on {device.type}, with {WORKERS} workers"
    text = f"measured on this CPU, {count(torch.get_num_threads(), 'thread')}"
    load = 0.0
    with suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
    if load > BUSY * available_cores():
        text += f"; other programs are using it (load {load:.1f}), without them it is faster"
    return text
