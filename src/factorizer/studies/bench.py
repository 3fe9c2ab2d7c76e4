"""A bench: a trained model, and the held-out cases on which its accuracy and time are measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import nn

from factorizer.data.cache import Preparation, preparation_for
from factorizer.data.cases import Cohort
from factorizer.data.layouts import read_cohort
from factorizer.errors import ModelError
from factorizer.evaluation.scores import Score
from factorizer.evaluation.statistics import bootstrap_mean
from factorizer.inference.load import load
from factorizer.inference.predictor import Predictor
from factorizer.inspection.settings import LayerSetting, Point, Setting, applied
from factorizer.profiling.count import count_flops
from factorizer.runs.find import find_fold
from factorizer.runs.fold import Fold
from factorizer.training.scoring import score_case

ROUNDS = 9  # of timing


@dataclass(frozen=True)
class Timing:
    """The time of one patch, and its ratio to that of another network with a 95 % interval."""

    milliseconds: float
    ratio: float
    low: float
    high: float


def make_timing(ours: Sequence[float], theirs: Sequence[float]) -> Timing:
    """The timing from the seconds of both networks, round by round.

    The time is the median. The ratio is the geometric mean, with its bootstrap interval.
    """
    logs = np.log(ours) - np.log(theirs)
    low, high = bootstrap_mean(logs)
    return Timing(
        milliseconds=1000 * float(np.median(ours)),
        ratio=float(np.exp(logs.mean())),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
    )


class Bench:
    """A model and the cases it is measured on."""

    def __init__(
        self, predictor: Predictor, cohort: Cohort, names: Sequence[str], preparation: Preparation
    ) -> None:
        self.predictor = predictor
        self.network = predictor.networks[0]
        self.cohort = cohort
        self.names = list(names)
        self.preparation = preparation

    @property
    def patch_shape(self) -> tuple[int, ...]:
        """The channels and the size of a patch."""
        preset = self.predictor.preset
        return (preset.in_channels, *preset.data.patch_size)

    def scores(self, layers: Sequence[LayerSetting]) -> list[Score]:
        """The scores of every case, with the layers as given."""
        rows: list[Score] = []
        with applied(self.network, layers):
            for name in self.names:
                rows += score_case(self.predictor, self.cohort.case(name), self.preparation)
        return rows

    def time(
        self, layers: Sequence[LayerSetting], rounds: int = ROUNDS, beside: Bench | None = None
    ) -> Timing:
        """Time one patch with the layers as given, and as trained, in turn first.

        With `beside`, the network of that bench as trained is the other one.
        """
        patch = torch.randn(1, *self.patch_shape, device=self.predictor.device)
        other = self if beside is None else beside
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(rounds):
            if number % 2:
                ours.append(time_forward(self.network, layers, patch))
                theirs.append(time_forward(other.network, (), patch))
            else:
                theirs.append(time_forward(other.network, (), patch))
                ours.append(time_forward(self.network, layers, patch))
        return make_timing(ours, theirs)

    def measure(self, setting: Setting, beside: Bench | None = None) -> Point:
        """Everything about a setting. Its time is compared as `time` does."""
        rows = self.scores(setting.layers)
        timing = self.time(setting.layers, beside=beside)
        with applied(self.network, setting.layers):
            flops = count_flops(self.network, self.patch_shape)
        return Point(
            study=setting.study,
            value=setting.value,
            dice=mean_score(rows, "dice"),
            hd95_mm=mean_score(rows, "hd95_mm"),
            milliseconds=timing.milliseconds,
            time_ratio=timing.ratio,
            gflops=flops / 1e9,
            cases=len(self.names),
            note=setting.note,
        )


def mean_score(rows: Sequence[Score], metric: str) -> float:
    return fmean(row.value for row in rows if row.metric == metric)


def time_forward(network: nn.Module, layers: Sequence[LayerSetting], patch: torch.Tensor) -> float:
    """The seconds of one forward pass."""
    with applied(network, layers), torch.inference_mode():
        start = time.perf_counter()
        network(patch)
        if patch.device.type in ("cuda", "mps"):
            getattr(torch, patch.device.type).synchronize()
        return time.perf_counter() - start


def make_bench(
    model: str | Path, data: Path, *, device: str = "auto", limit: int | None = None
) -> Bench:
    """A fold with its held-out cases, or with the first `limit` of them."""
    fold = find_fold(model)
    if not isinstance(fold.number, int) or not fold.run.folds_file.is_file():
        raise ModelError(
            f"{fold.name} held out no cases; give a fold of a run that did, as RUN/fold0"
        )
    cohort = read_cohort(data, mask_suffix=fold.preset.data.mask_suffix)
    names = held_out_cases(fold, cohort)[:limit]
    predictor = load(fold.path, device=device)
    return Bench(predictor, cohort, names, preparation_for(cohort, predictor.preset.data))


def held_out_cases(fold: Fold, cohort: Cohort) -> list[str]:
    """The held-out cases of a fold that are in the data, except those that training left out."""
    assert isinstance(fold.number, int), "it holds out cases"
    held_out = fold.run.split(cohort.cases).get(fold.number, [])
    known = fold.cases()
    names = [name for name in held_out if name in known]
    if not names:
        raise ModelError(
            f"the data set has none of the cases that {fold.name} held out; give the data set that "
            "it was trained on"
        )
    return names
