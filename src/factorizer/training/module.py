"""What Lightning runs: the network with its loss, optimizer and validation.

The random numbers of the network (dropout) are seeded by the step. So a training that is resumed
gives the same weights, bit for bit, as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from factorizer.errors import FactorizerError, RunError
from factorizer.evaluation.metrics import dice
from factorizer.evaluation.scores import Score
from factorizer.inference.sliding import Sliding
from factorizer.training.checkpoints import REMEDY
from factorizer.training.loss import supervised_loss
from factorizer.training.optimizer import make_optimizer
from factorizer.training.schedule import rate_factor

EARLY_STEPS = 9  # an average of few steps keeps less of itself: about their plain mean
Result = TypeVar("Result")
ScoreLast = Callable[[str, Sequence[Tensor]], list[Score]]  # a case and its logits in slabs


class Segmentation(LightningModule):
    """A network in training."""

    def __init__(
        self,
        network: nn.Module,
        *,
        averaged: nn.Module | None = None,
        average_weights: float = 0.0,
        regions: Sequence[str],
        optimizer: str,
        learning_rate: float,
        weight_decay: float,
        max_steps: int,
        warmup_steps: int,
        supervision_weights: Sequence[float],
        dice_epsilon: float,
        sliding: Sliding,
        threshold: float,
        seed: int,
    ) -> None:
        super().__init__()
        self.network = network
        self.averaged = averaged.requires_grad_(False) if averaged is not None else None
        self.average_weights = average_weights
        self.regions = list(regions)
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_steps = max_steps
        self.warmup_steps = warmup_steps
        self.supervision_weights = tuple(supervision_weights)
        self.dice_epsilon = dice_epsilon
        self.sliding = sliding
        self.threshold = threshold
        self.seed = seed
        self.validated: dict[str, dict[str, float]] = {}
        self.score_last: ScoreLast | None = None
        self.scored: dict[str, list[Score]] = {}  # by a validation at the last step

    @property
    def model(self) -> nn.Module:
        """What is validated, scored and used later: the averaged weights, if there are any."""
        return self.network if self.averaged is None else self.averaged

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(
            self.optimizer,
            self.network,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )

        def factor(step: int) -> float:
            return rate_factor(step, max_steps=self.max_steps, warmup_steps=self.warmup_steps)

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self) -> None:
        """Set the learning rate of this step. A checkpoint has another one if the training has
        become longer since."""
        optimizer = self.trainer.optimizers[0]
        if not is_state_of(optimizer):
            raise RunError(
                f"{self.trainer.ckpt_path} has an optimizer of another network; {REMEDY}"
            )
        (config,) = self.trainer.lr_scheduler_configs
        schedule = config.scheduler
        rates = zip(optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
        for group, base, factor in rates:
            group["lr"] = base * factor(self.global_step)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Correct Lightning's count of batches.

        A training may now split a step into more or fewer parts than when it was saved. Checkpoints
        are written at the end of a part, so the last one counts as not completed.
        """
        batches = checkpoint["global_step"] * self.trainer.accumulate_grad_batches
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["current"], progress["total"]):
            counts.update(ready=batches, started=batches, processed=batches, completed=batches - 1)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        part = batch_idx % self.trainer.accumulate_grad_batches
        parts = (self.seed, self.global_step, part, self.global_rank)
        torch.manual_seed(int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]))

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        outputs = self.network(batch["image"])
        loss = supervised_loss(
            outputs, batch["target"], weights=self.supervision_weights, epsilon=self.dice_epsilon
        )
        if not loss.isfinite():
            raise FactorizerError(
                f"the loss is {loss.item()} at step {self.global_step}, on the cases "
                f"{', '.join(batch['case'])}; lower training.learning_rate, set "
                "training.gradient_clip, or look at these cases"
            )
        # `LogSteps` writes it to the log
        self.log("loss", loss.detach(), prog_bar=True, sync_dist=True, logger=False)
        return loss

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        super().optimizer_step(*args, **options)
        if self.averaged is not None:
            step = self.global_step + 1  # Lightning counts this one a little later
            share = min(self.average_weights, step / (step + EARLY_STEPS))
            update_average(self.averaged, self.network, share)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        gradients = [weight.grad for weight in self.network.parameters()]
        norms = [gradient.norm() for gradient in gradients if gradient is not None]
        self.log("gradient_norm", torch.stack(norms).norm(), logger=False)
        self.log("learning_rate", optimizer.param_groups[0]["lr"], prog_bar=True, logger=False)

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> None:
        """Compute the Dice on the preprocessed grid.

        At the last step the same logits make the scores of the fold. So the network is applied to
        the case only once.
        """
        name = batch["case"]
        sliding = replace(self.sliding, device=self.device)
        logits = list(sliding.slabs(self.model, batch["image"]))
        self.validated[name] = self.dice_of(logits, batch["masks"])
        if self.score_last is not None and self.global_step == self.max_steps:
            self.scored[name] = self.score_last(name, logits)

    def dice_of(self, logits: Sequence[Tensor], masks: Tensor) -> dict[str, float]:
        """The Dice of each region. `logits` are the slabs of a case."""
        probabilities = torch.cat([slab.sigmoid() for slab in logits], dim=1)
        predicted = (probabilities >= self.threshold).cpu().numpy()
        truth = masks.cpu().numpy()
        return {
            region: dice(predicted[index], truth[index])
            for index, region in enumerate(self.regions)
        }

    def on_validation_epoch_end(self) -> None:
        validated = list(gather(self.trainer, self.validated).values())
        for region in self.regions:
            self.log(f"val_dice_{region}", fmean(scores[region] for scores in validated))
        means = [fmean(scores.values()) for scores in validated]
        self.log("val_dice", fmean(means), prog_bar=True)
        self.validated.clear()


@torch.no_grad()
def update_average(averaged: nn.Module, network: nn.Module, share: float) -> None:
    """Move averaged weights towards those of the network, keeping `share` of themselves."""
    for old, new in zip(averaged.state_dict().values(), network.state_dict().values(), strict=True):
        if old.is_floating_point():
            old.lerp_(new, 1 - share)
        else:
            old.copy_(new)


def is_state_of(optimizer: Any) -> bool:
    """Whether the optimizer's values of each parameter have its shape.

    PyTorch would notice a wrong shape only in the first step.
    """
    for parameter, values in optimizer.state.items():
        for value in values.values():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                return False
    return True


def gather(trainer: Trainer, results: dict[str, Result]) -> dict[str, Result]:
    """The results of all processes, by case, in all of them."""
    parts: list[dict[str, Result]] = [{} for _ in range(trainer.world_size)]
    if trainer.world_size > 1:
        torch.distributed.all_gather_object(parts, results)
    else:
        parts = [results]
    gathered: dict[str, Result] = {}
    for part in parts:
        gathered.update(sorted(part.items()))
    return gathered
