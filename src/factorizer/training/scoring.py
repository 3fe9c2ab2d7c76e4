"""Score a model on cases with references, as `factorizer predict` and `evaluate` would do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Trainer
from numpy.typing import NDArray
from torch import Tensor

from factorizer.config import Preset
from factorizer.data.cache import Preparation
from factorizer.data.cases import Case, Cohort
from factorizer.data.images import canonical_grid, read_label, turn_to_canonical
from factorizer.evaluation.label_maps import score_label_maps
from factorizer.evaluation.scores import Score
from factorizer.inference.predictor import Predictor
from factorizer.progress import Progress
from factorizer.training.machine import PRECISIONS
from factorizer.training.module import Segmentation, gather

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Predicted:
    """A predicted label map and its reference, both in canonical orientation."""

    labels: Array
    reference: Array
    spacing_mm: tuple[float, ...]


def predict_with_reference(
    predictor: Predictor,
    case: Case,
    preparation: Preparation,
    logits: Iterable[Tensor] | None = None,
) -> Predicted:
    """Predict a case and read its reference.

    `logits` are the slabs of this case, if the network was applied to it before.
    """
    prepared = predictor.prepare(case, preparation.channels)
    grid = prepared.frame.grid
    segmented = predictor.segment(prepared, logits=logits)
    labels = turn_to_canonical(segmented.labels[None], grid)[0]
    reference = read_label(case, preparation.label_values, grid)
    return Predicted(labels, reference, canonical_grid(grid).spacing_mm)


def score_case(
    predictor: Predictor,
    case: Case,
    preparation: Preparation,
    logits: Iterable[Tensor] | None = None,
) -> list[Score]:
    """Every metric of a case."""
    pair = predict_with_reference(predictor, case, preparation, logits)
    return score_label_maps(
        case.name,
        pair.labels,
        pair.reference,
        targets=predictor.preset.data.targets,
        spacing_mm=pair.spacing_mm,
    )


class Scoring:
    """The scores of a training's last weights on its held-out cases."""

    def __init__(self, preset: Preset, cohort: Cohort, preparation: Preparation) -> None:
        self.preset = preset
        self.cohort = cohort
        self.preparation = preparation

    def score_while_validating(self, trainer: Trainer, module: Segmentation) -> None:
        """Let the last validation score too.

        In mixed precision it does not, because `predict` computes differently.
        """
        if trainer.precision != PRECISIONS["32"]:
            return

        def score(name: str, logits: Iterable[Tensor]) -> list[Score]:
            predictor = self.predictor(trainer, module)
            return score_case(predictor, self.cohort.case(name), self.preparation, logits)

        module.score_last = score

    def predictor(self, trainer: Trainer, module: Segmentation) -> Predictor:
        return Predictor(self.preset, [module.model], device=trainer.strategy.root_device)

    def scores(
        self, trainer: Trainer, module: Segmentation, names: Sequence[str], progress: Progress
    ) -> list[Score]:
        """By case, from all processes. `names` are the cases of this process."""
        scored = module.scored
        missing = [name for name in names if name not in scored]
        if missing:
            predictor = self.predictor(trainer, module)
            for name in progress.track(missing, "scoring the held-out cases"):
                scored[name] = score_case(predictor, self.cohort.case(name), self.preparation)
        gathered = gather(trainer, scored)
        rows: list[Score] = []
        for case in sorted(gathered):
            rows += gathered[case]
        return rows
