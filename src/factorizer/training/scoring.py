"""The scores of a run on its held-out cases, by its last weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lightning.pytorch import Trainer

from factorizer.config import Preset
from factorizer.data.cache import Settings
from factorizer.data.cases import Cohort
from factorizer.evaluation.scores import Score
from factorizer.inference.predictor import Predictor
from factorizer.inference.score import score_case
from factorizer.training.module import Segmentation, gather
from factorizer.training.trainer import PRECISIONS

Track = Callable[
    [Sequence[Any], str], Iterable[Any]
]  # some items and what is done with them -> the same items


class Scoring:
    """The scores of the last weights on the held-out cases, as `factorizer evaluate` would find
    them."""

    def __init__(self, preset: Preset, cohort: Cohort, settings: Settings) -> None:
        self.preset, self.cohort, self.settings = preset, cohort, settings

    def score_while_validating(self, trainer: Trainer, module: Segmentation) -> None:
        """Let the last validation score too. In mixed precision it computes otherwise than
        `predict`, and does not."""
        if trainer.precision == PRECISIONS["32"]:
            module.score_last = lambda name, logits: score_case(
                self.predictor(trainer, module), self.cohort.case(name), self.settings, logits
            )

    def predictor(self, trainer: Trainer, module: Segmentation) -> Predictor:
        return Predictor(self.preset, [module.network], device=trainer.strategy.root_device)

    def scores(
        self, trainer: Trainer, module: Segmentation, names: Sequence[str], track: Track
    ) -> list[Score]:
        """By case, from all processes; `names` are the cases of this one."""
        scored = module.scored
        missing = [name for name in names if name not in scored]
        if missing:
            predictor = self.predictor(trainer, module)
            for name in track(missing, "scoring the held-out cases"):
                scored[name] = score_case(predictor, self.cohort.case(name), self.settings)
        gathered = gather(trainer, scored)
        return [row for case in sorted(gathered) for row in gathered[case]]
