"""`factorizer tune`: fewer iterations and bypassed layers that save time and cost little Dice.

Every layer is timed alone with fewer iterations and bypassed. The changes that save time beyond the
noise of timing are scored, and put together, the cheapest in Dice per time saved first, each kept
if the loss of mean Dice stays within the bound: not only on these cases, but to the end of the
interval of the paired difference, as in a test of non-inferiority. `fast` may lose the whole bound,
`balanced` half of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from factorizer.evaluation.scores import Score
from factorizer.evaluation.statistics import Difference, compare_pairs
from factorizer.files import write_atomically
from factorizer.inspection.ablation import Bench
from factorizer.inspection.settings import LayerSetting, settable_layers

Layers = tuple[LayerSetting, ...]
ROUNDS = 25  # of timing


@dataclass(frozen=True)
class Trial:
    """A setting with its time over the trained setting's, its mean Dice, and the difference to the
    trained one's."""

    name: str
    layers: Layers
    time_ratio: float
    dice: float
    difference: Difference

    def loses_at_most(self, bound: float) -> bool:
        """Whether the whole interval of the difference is above the bound, but for rounding."""
        return self.difference.low >= -bound - 1e-12


def options_of(num_iters: int) -> list[LayerSetting]:
    """What a layer may be turned down to."""
    fewer = [t for t in (1, 2, 3) if t < num_iters]
    return [*({"num_iters": t} for t in fewer), {"bypass": True}]


def case_dice(rows: Sequence[Score]) -> dict[str, float]:
    """The mean Dice over regions of each case."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.metric == "dice":
            values.setdefault(row.case, []).append(row.value)
    return {case: float(np.mean(own)) for case, own in values.items()}


class Tuner:
    """Tries settings on a bench, and remembers them."""

    def __init__(self, bench: Bench, advance: Callable[[], object] = lambda: None) -> None:
        self.bench, self.advance = bench, advance
        self.modules = settable_layers(bench.network)
        self.trained: Layers = ({},) * len(self.modules)
        self.reference = case_dice(bench.scores(self.trained))
        self.tried: dict[str, Trial | None] = {}
        self.confirmed: dict[str, Trial | None] = {}

    @property
    def trials(self) -> list[Trial]:
        return [trial for trial in self.tried.values() if trial is not None]

    def try_out(self, layers: Layers) -> Trial | None:
        """Time and Dice of a setting; None if it does not save time beyond the noise."""
        name = describe_layers(layers)
        if name not in self.tried:
            timing = self.bench.time(layers, ROUNDS)
            self.tried[name] = self.score(name, layers, timing.ratio) if timing.high < 1 else None
        self.advance()
        return self.tried[name]

    def score(self, name: str, layers: Layers, time_ratio: float) -> Trial:
        dice = case_dice(self.bench.scores(layers))
        cases = sorted(self.reference)
        difference = compare_pairs(
            [dice[case] for case in cases], [self.reference[case] for case in cases]
        )
        return Trial(name, layers, time_ratio, float(np.mean(list(dice.values()))), difference)

    def singles(self) -> list[tuple[int, LayerSetting, Trial]]:
        """Every layer alone, turned down in every way that saves time."""
        found = []
        for index, module in enumerate(self.modules):
            for option in options_of(module.num_iters):
                trial = self.try_out(with_layer(self.trained, index, option))
                if trial is not None:
                    found.append((index, option, trial))
        return found

    def combine(
        self, singles: Sequence[tuple[int, LayerSetting, Trial]], max_loss: float
    ) -> Trial | None:
        """Put single changes together as long as the loss of Dice stays within the bound; None if
        nothing helps."""
        useful = [s for s in singles if s[2].loses_at_most(max_loss)]
        useful.sort(
            key=lambda s: (max(-s[2].difference.mean, 0.0) / (1 - s[2].time_ratio), s[2].time_ratio)
        )
        current, best = self.trained, None
        for index, option, _ in useful:
            if current[index].get("bypass"):
                continue
            trial = self.try_out(with_layer(current, index, option))
            if trial is None or not trial.loses_at_most(max_loss):
                continue
            if best is None or trial.time_ratio < best.time_ratio:
                current, best = trial.layers, trial
        return best

    def confirm(self, trial: Trial | None) -> Trial | None:
        """What was chosen for its time is timed afresh, as the time it was chosen by is too good;
        None if it fails."""
        if trial is None:
            return None
        if trial.name not in self.confirmed:
            timing = self.bench.time(trial.layers, 2 * ROUNDS)
            self.confirmed[trial.name] = (
                replace(trial, time_ratio=timing.ratio) if timing.high < 1 else None
            )
        return self.confirmed[trial.name]


def keep_order(found: dict[str, Trial | None]) -> dict[str, Trial]:
    """The speeds that there are; each at least as fast as the one before, which may lose less."""
    speeds: dict[str, Trial] = {}
    last = None
    for name, trial in found.items():
        if trial is not None and (last is None or trial.time_ratio <= last.time_ratio):
            last = trial
        if last is not None:
            speeds[name] = last
    return speeds


def with_layer(layers: Layers, index: int, setting: LayerSetting) -> Layers:
    return (*layers[:index], setting, *layers[index + 1 :])


def describe(setting: LayerSetting) -> str:
    return (
        "off" if setting.get("bypass") else f"T={setting['num_iters']}" if setting else "as trained"
    )


def describe_layers(layers: Layers) -> str:
    return " ".join(
        f"{index}:{describe(layer)}" for index, layer in enumerate(layers, start=1) if layer
    )


def write_speeds(folder: Path, speeds: dict[str, Trial]) -> Path:
    """speeds.json, which `predict --speed` reads."""
    content = {name: [dict(layer) for layer in trial.layers] for name, trial in speeds.items()}
    write_atomically(folder / "speeds.json", json.dumps(content, indent=1) + "\n")
    return folder / "speeds.json"
