"""A short training for comparisons: a constant rate after a warm-up, and averaged weights.

The end of a run need not be known beforehand, so its averaged weights can be scored at any step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from factorizer.config import Preset
from factorizer.data.cache import Preparation
from factorizer.data.cases import Cohort
from factorizer.data.patches import PatchDataset
from factorizer.evaluation.scores import Score
from factorizer.inference.predictor import Predictor
from factorizer.training.loss import supervised_loss
from factorizer.training.module import EARLY_STEPS, update_average
from factorizer.training.optimizer import make_optimizer
from factorizer.training.scoring import score_case

WARMUP, AVERAGE = 20, 0.98


class ShortTraining:
    """A network in training on some patches, and the running average of its weights.

    `make_network` returns the same first weights at every call.
    """

    def __init__(
        self,
        make_network: Callable[[], nn.Module],
        patches: PatchDataset,
        preset: Preset,
        *,
        optimizer: str,
        rate: float,
    ) -> None:
        self.network, self.averaged = make_network(), make_network()
        self.patches = patches
        self.preset = preset
        self.rate = rate
        self.steps = 0
        self.optimizer = make_optimizer(
            optimizer,
            self.network,
            learning_rate=rate,
            weight_decay=preset.training.weight_decay,
        )
        self.batches = self.batches_from(0)

    def batches_from(self, step: int) -> Iterator[dict[str, Tensor]]:
        size = self.preset.training.batch_size
        rest = Subset(self.patches, range(step * size, len(self.patches)))
        return iter(DataLoader(rest, batch_size=size))

    def step(self) -> float:
        """Train on the next batch, and return its loss."""
        self.steps += 1
        training, batch = self.preset.training, next(self.batches)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, self.steps / WARMUP)
        self.network.train()
        loss = supervised_loss(
            self.network(batch["image"]),
            batch["target"],
            weights=training.deep_supervision_weights,
            epsilon=training.dice_epsilon,
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        share = min(AVERAGE, self.steps / (self.steps + EARLY_STEPS))
        update_average(self.averaged, self.network, share)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss is {loss.item()} at step {self.steps}")
        return loss.item()

    def scores(self, cohort: Cohort, preparation: Preparation, cases: Sequence[str]) -> list[Score]:
        """The scores of the averaged weights."""
        predictor = Predictor(self.preset, [self.averaged])
        rows: list[Score] = []
        for case in cases:
            rows += score_case(predictor, cohort.case(case), preparation)
        return rows

    def save(self, file: Path) -> None:
        """Save everything that the next steps need."""
        state = {
            "steps": self.steps,
            "network": self.network.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".part")
        torch.save(state, partial)
        partial.replace(file)

    def resume(self, file: Path) -> None:
        """Go to where a training was when it was saved."""
        state = torch.load(file, weights_only=True)
        self.steps = state["steps"]
        self.network.load_state_dict(state["network"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches = self.batches_from(self.steps)


@contextmanager
def claim(file: Path, work: Path) -> Iterator[bool]:
    """Whether a result is missing, and no other process makes it now. Locks are in `work`."""
    (work / ".locks").mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(work / ".locks" / f"{file.parent.name}-{file.name}", timeout=0):
            yield not file.exists()
    except Timeout:
        yield False
