"""`factorizer ablate inference`: a trained network with its layers turned down, nothing retrained
(Fig. 8)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from factorizer.data.cache import Settings, settings_for
from factorizer.data.cases import Cohort
from factorizer.data.folds import read_own_folds
from factorizer.data.layouts import read_cohort
from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Score
from factorizer.evaluation.statistics import bootstrap_mean
from factorizer.files import FileError, csv_text, read_csv, read_json, write_atomically
from factorizer.inference.load import find_models, load
from factorizer.inference.predictor import Predictor
from factorizer.inference.score import score_case
from factorizer.inspection.settings import LayerSetting, Point, Setting, applied
from factorizer.profiling.count import count_flops

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
    (folder,) = find_models(run)
    predictor = load(folder, device=device)
    cohort = read_cohort(data, mask_suffix=predictor.preset.data.mask_suffix)
    file = folder.parent / "folds.json"
    number = folder.name.removeprefix("fold")
    if not file.is_file() or not number.isdecimal():
        raise FactorizerError(
            f"{folder} held out no cases; give a fold of a run that did, as RUN/fold0"
        )
    folds = read_own_folds(file, cohort.cases)
    fold = int(number)
    if fold not in folds:
        raise FactorizerError(
            f"{file} has no fold {fold}; give the data that {folder} was trained on"
        )
    known = read_json(folder / "cases.json")  # what training could not read is left out here too
    if not isinstance(known, dict):
        raise FileError(folder / "cases.json", "it does not hold the cases of a run")
    names = [name for name in folds[fold] if name in known][:limit]
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


def run_ablation(
    bench: Bench,
    settings: Sequence[Setting],
    file: Path,
    track: Track,
    *,
    beside: Bench | None = None,
) -> list[Point]:
    """Measure every setting, each written down when it is done: a second call goes on with what is
    missing.

    Times are over those of the network as trained, or of the one `beside` it.
    """
    check_origin(bench, file.with_suffix(".json"))
    points = read_points(file)
    done = {(point.study, point.value) for point in points}
    for setting in track([s for s in settings if (s.study, s.value) not in done], "settings"):
        points.append(bench.measure(setting, beside))
        write_points(file, points)
    return points


def check_baseline(bench: Bench, other: Bench) -> None:
    """Dice, time and FLOPs of a window mean the same for both."""
    ours, theirs = bench.predictor.preset.data, other.predictor.preset.data
    for what in ("channels", "patch_size", "labels", "regions"):
        values = getattr(ours, what), getattr(theirs, what)
        if values[0] != values[1]:
            raise FactorizerError(
                f"the baseline has the {what} {values[1]}, not {values[0]}; give a run of the same "
                "preset"
            )
    if other.names != bench.names:
        raise FactorizerError(
            "the baseline holds out other cases than the run; give a run of the same split and fold"
        )


def fingerprint(network: nn.Module) -> str:
    """Of its weights."""
    weights = hashlib.blake2b(digest_size=8)
    for value in network.state_dict().values():
        weights.update(value.cpu().numpy().tobytes())
    return weights.hexdigest()


def check_origin(bench: Bench, file: Path) -> None:
    """Points of another model, device or of other cases are not mixed with these."""
    now = {
        "weights": fingerprint(bench.network),
        "cases": bench.names,
        "device": bench.predictor.device.type,
    }
    if not file.exists():
        write_atomically(file, json.dumps(now, indent=1) + "\n")
        return
    before = read_json(file)
    if not isinstance(before, dict):
        raise FileError(
            file, "it does not say what was measured", "remove it, or give another folder"
        )
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        raise FactorizerError(
            f"{file.parent} was begun with other {' and '.join(changed)}; give another folder"
        )


def write_points(file: Path, points: Sequence[Point]) -> None:
    columns = [field.name for field in fields(Point)]
    write_atomically(
        file, csv_text(columns, [[getattr(point, name) for name in columns] for point in points])
    )


def read_points(file: Path) -> list[Point]:
    if not file.is_file():
        return []
    try:
        lines = [line for _, line in read_csv(file)]
        return [
            Point(**{f.name: convert(f.type, line[f.name]) for f in fields(Point)})
            for line in lines
        ]
    except (KeyError, ValueError) as error:
        raise FactorizerError(
            f"{file} is not a table of an ablation ({error}); remove it, or give another folder"
        ) from None


def convert(kind: Any, text: str) -> Any:
    return {"int": int, "float": float}.get(str(kind), str)(text)
