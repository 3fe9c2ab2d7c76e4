"""A trained model and the held-out cases that it is measured on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from factorizer.data.cache import Settings, settings_for
from factorizer.data.cases import Cohort
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Score
from factorizer.evaluation.statistics import bootstrap_mean
from factorizer.inference.load import load
from factorizer.inference.predictor import Predictor
from factorizer.inspection.settings import LayerSetting, Point, Setting, applied
from factorizer.profiling.count import count_flops
from factorizer.runs.find import find_fold
from factorizer.training.scoring import score_case

Track = Callable[[Sequence[Any], str], Iterable[Any]]
ROUNDS = 9


@dataclass(frozen=True)
class Timing:
    """What one window takes, and that over what it takes as trained, with its 95 % interval."""

    milliseconds: float
    ratio: float
    low: float
    high: float


def make_timing(ours: Sequence[float], trained: Sequence[float]) -> Timing:
    """From the seconds of rounds: the median, and the geometric mean of the ratios with its
    bootstrap interval."""
    logs = np.log(ours) - np.log(trained)
    low, high = bootstrap_mean(logs)
    return Timing(
        1000 * float(np.median(ours)), *(float(np.exp(x)) for x in (logs.mean(), low, high))
    )


def make_bench(run: Path, data: Path, *, device: str, limit: int | None = None) -> Bench:
    """A run's fold and its held-out cases, or the first of them."""
    fold = find_fold(run)
    predictor = load(fold.path if not fold.is_in_zoo else fold.name, device=device)
    cohort = read_cohort(data, mask_suffix=predictor.preset.data.mask_suffix)
    if not isinstance(fold.number, int) or not fold.run.folds_file.is_file():
        raise FactorizerError(
            f"{fold.name} held out no cases; give a fold of a run that did, as RUN/fold0"
        )
    folds = fold.run.split(cohort.cases)
    if fold.number not in folds:
        raise FactorizerError(
            f"{fold.run.folds_file} has no fold {fold.number}; give the data that {fold.name} was "
            "trained on"
        )
    known = fold.cases()  # cases that training could not read are left out here too
    names = [name for name in folds[fold.number] if name in known][:limit]
    return Bench(predictor, cohort, names, settings_for(cohort, predictor.preset.data))


class Bench:
    """A model and the cases it is measured on."""

    def __init__(
        self, predictor: Predictor, cohort: Cohort, names: Sequence[str], settings: Settings
    ) -> None:
        self.predictor, self.network = predictor, predictor.networks[0]
        self.cohort, self.names, self.settings = cohort, list(names), settings

    def scores(
        self, layers: Sequence[LayerSetting], track: Track = lambda items, label: items
    ) -> list[Score]:
        """Every case under a setting."""
        with applied(self.network, layers):
            return [
                row
                for name in track(self.names, "scoring")
                for row in score_case(self.predictor, self.cohort.case(name), self.settings)
            ]

    def time(
        self, layers: Sequence[LayerSetting], rounds: int = ROUNDS, beside: Bench | None = None
    ) -> Timing:
        """One window under a setting, and as trained, or by the network of another bench as
        trained, in turn first."""
        preset = self.predictor.preset
        patch = torch.randn(
            1, preset.in_channels, *preset.data.patch_size, device=self.predictor.device
        )
        other = self.network if beside is None else beside.network
        sides: list[tuple[nn.Module, Sequence[LayerSetting]]] = [
            (self.network, layers),
            (other, ()),
        ]
        seconds: tuple[list[float], list[float]] = ([], [])
        for index in range(rounds):
            for which in (0, 1) if index % 2 else (1, 0):
                seconds[which].append(time_forward(*sides[which], patch))
        return make_timing(*seconds)

    def measure(self, setting: Setting, beside: Bench | None = None) -> Point:
        rows = self.scores(setting.layers)
        timing = self.time(setting.layers, beside=beside)
        means = {
            m: fmean(row.value for row in rows if row.metric == m) for m in ("dice", "hd95_mm")
        }
        preset = self.predictor.preset
        with applied(self.network, setting.layers):
            gflops = count_flops(self.network, (preset.in_channels, *preset.data.patch_size)) / 1e9
        return Point(
            setting.study,
            setting.value,
            means["dice"],
            means["hd95_mm"],
            timing.milliseconds,
            timing.ratio,
            gflops,
            len(self.names),
            setting.note,
        )


def time_forward(network: nn.Module, layers: Sequence[LayerSetting], patch: torch.Tensor) -> float:
    with applied(network, layers), torch.inference_mode():
        start = time.perf_counter()
        network(patch)
        if patch.device.type in ("cuda", "mps"):
            getattr(torch, patch.device.type).synchronize()
        return time.perf_counter() - start
