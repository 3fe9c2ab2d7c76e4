"""Tune a trained model: find speeds, which save time and cost little Dice.

1. Every layer is timed alone, with fewer iterations and bypassed.
2. The changes that save time beyond the noise of timing are scored on the held-out cases.
3. They are combined, those that cost the least Dice per time saved first. A change is kept if the
   loss of mean Dice stays within a bound.

The bound holds for the whole interval of the paired difference, as in a test of non-inferiority,
not only for its mean. The speed `fast` may lose the whole bound, `balanced` half of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from factorizer.errors import FactorizerError, ModelError
from factorizer.evaluation.scores import Score
from factorizer.evaluation.statistics import Difference, compare_pairs
from factorizer.figures.ablations import Timed, draw_front
from factorizer.files import write_atomically
from factorizer.inspection.settings import LayerSetting, settable_layers
from factorizer.progress import SILENT, Progress, Task
from factorizer.runs.find import find_fold
from factorizer.runs.fold import Fold
from factorizer.runs.speeds import AS_TRAINED
from factorizer.studies.bench import Bench, make_bench
from factorizer.words import count

Layers = tuple[LayerSetting, ...]
ROUNDS = 25  # of timing
FEWEST_CASES = 3
FEWER_ITERATIONS = (1, 2, 3)
ROUNDING = 1e-12


@dataclass(frozen=True)
class Trial:
    """A setting of all layers: its time and Dice, and how they differ from the model as trained."""

    name: str
    layers: Layers
    time_ratio: float
    dice: float
    difference: Difference

    def loses_at_most(self, bound: float) -> bool:
        """Whether the whole interval of the difference is above the bound, except for rounding."""
        return self.difference.low >= -bound - ROUNDING


@dataclass(frozen=True)
class Change:
    """A setting of one layer, and the trial of it alone."""

    layer: int
    setting: LayerSetting
    trial: Trial

    @property
    def price(self) -> tuple[float, float]:
        """The Dice that it costs per time saved, and its time."""
        lost = max(-self.trial.difference.mean, 0.0)
        return lost / (1 - self.trial.time_ratio), self.trial.time_ratio


@dataclass(frozen=True)
class Tuning:
    """The mean Dice as trained, the speeds that were found, and the files that were written."""

    dice: float
    speeds: Mapping[str, Trial]
    files: Sequence[Path]


def tune(
    model: str | Path,
    data: Path,
    *,
    max_loss: float = 0.005,
    limit: int | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Tuning:
    """Find the speeds balanced and fast of a trained model. `predict` can use them.

    They are written into the fold, beside a figure of everything that was tried.

    Args:
        model: A fold of a Factorizer, RUN or RUN/foldK.
        data: The data set that it was trained on. Its held-out cases are scored.
        max_loss: How much mean Dice may fall, from 0 to 1.
        limit: How many of the held-out cases are used. Otherwise all are.
        device: auto, cpu, cuda or mps.
        progress: Where lines and bars go.

    Example:
        >>> tuning = factorizer.tune("runs/strokes/fold0", data)  # doctest: +SKIP
        >>> tuning.speeds["fast"].time_ratio  # doctest: +SKIP
        0.61
    """
    if not 0 <= max_loss < 1:
        raise FactorizerError(
            f"max_loss is {max_loss:g}; it must be at least 0 and less than 1, such as 0.005"
        )
    fold = find_fold(model)
    check_tunable(fold)
    bench = make_bench(model, data, device=device, limit=limit)
    if len(bench.names) < FEWEST_CASES:
        raise FactorizerError(
            f"a loss of Dice cannot be judged by {count(len(bench.names), 'held-out case')}; "
            f"give at least {FEWEST_CASES}"
        )
    with progress.task("scoring as trained") as task:
        tuner = Tuner(bench, task)
        speeds = tuner.find_speeds(max_loss)
    return Tuning(tuner.dice, speeds, write_files(fold, tuner, speeds))


def check_tunable(fold: Fold) -> None:
    """Refuse a fold that has speeds, or that is not trained to its end."""
    if fold.speeds_file.exists():
        raise ModelError(f"{fold.speeds_file} already exists; remove it to tune again")
    if not fold.is_finished:
        raise ModelError(f"{fold.path} is not finished; resume its training first")


def write_files(fold: Fold, tuner: Tuner, speeds: Mapping[str, Trial]) -> list[Path]:
    """The figure, and the speeds if some were found."""
    tried = [Timed("as trained", 1.0, tuner.dice)]
    tried += [Timed(trial.name, trial.time_ratio, trial.dice) for trial in tuner.trials]
    chosen = [Timed(AS_TRAINED, 1.0, tuner.dice)]
    chosen += [Timed(name, trial.time_ratio, trial.dice) for name, trial in speeds.items()]
    write_atomically(fold.speeds_figure, draw_front(tried, chosen))
    if not speeds:
        return [fold.speeds_figure]
    fold.write_speeds({name: trial.layers for name, trial in speeds.items()})
    return [fold.speeds_figure, fold.speeds_file]


class Tuner:
    """Tries settings on a bench, and remembers them."""

    def __init__(self, bench: Bench, task: Task | None = None) -> None:
        self.bench = bench
        self.task = task or Task()
        self.modules = settable_layers(bench.network)
        self.trained: Layers = ({},) * len(self.modules)
        self.reference = case_dice(bench.scores(self.trained))
        self.tried: dict[str, Trial | None] = {}
        self.confirmed: dict[str, Trial | None] = {}

    @property
    def dice(self) -> float:
        """The mean Dice of the model as trained."""
        return fmean(self.reference.values())

    @property
    def trials(self) -> list[Trial]:
        """The settings that were scored."""
        return [trial for trial in self.tried.values() if trial is not None]

    def find_speeds(self, max_loss: float) -> dict[str, Trial]:
        """The speeds that save time within a loss of Dice."""
        options = [settings_of(module.num_iters) for module in self.modules]
        self.task.update(label="single layers", total=sum(map(len, options)), completed=0)
        singles = self.singles()
        self.task.update(label="combining")
        found = {}
        for name, bound in (("balanced", max_loss / 2), ("fast", max_loss)):
            found[name] = self.confirm(self.combine(singles, bound))
        return keep_order(found)

    def singles(self) -> list[Change]:
        """Every layer alone, turned down in every way that saves time."""
        found = []
        for index, module in enumerate(self.modules):
            for setting in settings_of(module.num_iters):
                trial = self.try_out(with_layer(self.trained, index, setting))
                if trial is not None:
                    found.append(Change(index, setting, trial))
        return found

    def try_out(self, layers: Layers) -> Trial | None:
        """The time and Dice of a setting. None if it does not save time beyond the noise."""
        name = describe_layers(layers)
        if name not in self.tried:
            timing = self.bench.time(layers, ROUNDS)
            saves_time = timing.high < 1
            self.tried[name] = self.score(name, layers, timing.ratio) if saves_time else None
        self.task.advance()
        return self.tried[name]

    def score(self, name: str, layers: Layers, time_ratio: float) -> Trial:
        """The Dice of a setting, compared with the model as trained case by case."""
        dice = case_dice(self.bench.scores(layers))
        cases = sorted(self.reference)
        ours = [dice[case] for case in cases]
        trained = [self.reference[case] for case in cases]
        mean = float(np.mean(list(dice.values())))
        return Trial(name, layers, time_ratio, mean, compare_pairs(ours, trained))

    def combine(self, singles: Sequence[Change], max_loss: float) -> Trial | None:
        """Combine changes while the loss of Dice stays within the bound. None if nothing helps."""
        useful = [change for change in singles if change.trial.loses_at_most(max_loss)]
        useful.sort(key=lambda change: change.price)
        current, best = self.trained, None
        for change in useful:
            if current[change.layer].get("bypass"):
                continue
            trial = self.try_out(with_layer(current, change.layer, change.setting))
            if trial is None or not trial.loses_at_most(max_loss):
                continue
            if best is None or trial.time_ratio < best.time_ratio:
                current, best = trial.layers, trial
        return best

    def confirm(self, trial: Trial | None) -> Trial | None:
        """Time a chosen setting again. None if it does not save time.

        The time that it was chosen by is too good, because it was the best of several.
        """
        if trial is None:
            return None
        if trial.name not in self.confirmed:
            timing = self.bench.time(trial.layers, 2 * ROUNDS)
            again = replace(trial, time_ratio=timing.ratio)
            self.confirmed[trial.name] = again if timing.high < 1 else None
        return self.confirmed[trial.name]


def keep_order(found: Mapping[str, Trial | None]) -> dict[str, Trial]:
    """The speeds that were found, each at least as fast as the one before, which may lose less."""
    speeds: dict[str, Trial] = {}
    last = None
    for name, trial in found.items():
        if trial is not None and (last is None or trial.time_ratio <= last.time_ratio):
            last = trial
        if last is not None:
            speeds[name] = last
    return speeds


def settings_of(num_iters: int) -> list[LayerSetting]:
    """How a layer of T iterations may be turned down."""
    settings: list[LayerSetting] = []
    for fewer in FEWER_ITERATIONS:
        if fewer < num_iters:
            settings.append({"num_iters": fewer})
    settings.append({"bypass": True})
    return settings


def case_dice(rows: Sequence[Score]) -> dict[str, float]:
    """The mean Dice over regions of each case."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.metric == "dice":
            values.setdefault(row.case, []).append(row.value)
    return {case: float(np.mean(own)) for case, own in values.items()}


def with_layer(layers: Layers, index: int, setting: LayerSetting) -> Layers:
    """The layers, one of them with another setting."""
    return (*layers[:index], setting, *layers[index + 1 :])


def describe_layers(layers: Layers) -> str:
    """The layers that are changed, such as `1:T=2 3:off`."""
    parts = []
    for number, setting in enumerate(layers, start=1):
        if setting.get("bypass"):
            parts.append(f"{number}:off")
        elif setting:
            parts.append(f"{number}:T={setting['num_iters']}")
    return " ".join(parts)
