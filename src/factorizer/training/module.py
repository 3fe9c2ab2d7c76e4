"""What Lightning runs: the network with its loss, optimizer and validation, and the stream of
training patches.

Step k of a run trains on samples k B to (k + 1) B - 1, whatever the number of devices, workers and
interruptions; and random numbers of the network (dropout) are seeded by the step. A run that is
resumed goes on bit for bit.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from factorizer.config import Preset
from factorizer.data.cache import CaseStore
from factorizer.data.patches import PatchDataset
from factorizer.errors import FactorizerError, RunError
from factorizer.evaluation.metrics import dice
from factorizer.evaluation.scores import Score
from factorizer.inference.sliding import Sliding
from factorizer.targets import Targets
from factorizer.training.checkpoints import REMEDY
from factorizer.training.loss import supervised_loss
from factorizer.training.optimizer import make_optimizer
from factorizer.training.schedule import rate_factor
from factorizer.training.trainer import share_batch

Result = TypeVar("Result")
ScoreLast = Callable[
    [str, Sequence[Tensor]], list[Score]
]  # a case and its logits in slabs -> its scores


class Segmentation(LightningModule):
    """A network in training."""

    def __init__(
        self,
        network: nn.Module,
        *,
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
        self.network, self.regions, self.seed = network, list(regions), seed
        self.optimizer, self.learning_rate, self.weight_decay = (
            optimizer,
            learning_rate,
            weight_decay,
        )
        self.max_steps, self.warmup_steps = max_steps, warmup_steps
        self.supervision_weights, self.dice_epsilon = tuple(supervision_weights), dice_epsilon
        self.sliding, self.threshold = sliding, threshold
        self.validated: dict[str, dict[str, float]] = {}
        self.score_last: ScoreLast | None = None
        self.scored: dict[
            str, list[Score]
        ] = {}  # by the last validation, if that is at the last step

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
        """The rate of this step, also where a run was made longer since its checkpoint was
        written."""
        if not is_state_of(self.trainer.optimizers[0]):
            raise RunError(
                f"{self.trainer.ckpt_path} has an optimizer of another network; {REMEDY}"
            )
        (schedule,) = self.trainer.lr_scheduler_configs
        for group, base, factor in zip(
            self.trainer.optimizers[0].param_groups,
            schedule.scheduler.base_lrs,
            schedule.scheduler.lr_lambdas,
            strict=True,
        ):
            group["lr"] = base * factor(self.global_step)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning counts batches, and this run may split a step into more or fewer of them than
        the one before. As checkpoints are written at the end of a batch, the last one counts as not
        completed."""
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
        self.log(
            "loss", loss.detach(), prog_bar=True, sync_dist=True, logger=False
        )  # `LogSteps` does
        return loss

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        norms = [p.grad.norm() for p in self.network.parameters() if p.grad is not None]
        self.log("gradient_norm", torch.stack(norms).norm(), logger=False)
        self.log("learning_rate", optimizer.param_groups[0]["lr"], prog_bar=True, logger=False)

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> None:
        """Dice on the preprocessed grid. At the last step the same logits make the scores of the
        run, so that the network is not applied to the case again."""
        sliding = replace(self.sliding, device=self.device)
        logits = list(sliding.slabs(self.network, batch["image"]))
        probabilities = torch.cat([slab.sigmoid() for slab in logits], dim=1)
        masks, truth = (probabilities >= self.threshold).cpu().numpy(), batch["masks"].cpu().numpy()
        scores = {
            region: dice(m, r) for region, m, r in zip(self.regions, masks, truth, strict=True)
        }
        self.validated[batch["case"]] = scores
        if self.score_last is not None and self.global_step == self.max_steps:
            del probabilities, masks, truth
            self.scored[batch["case"]] = self.score_last(batch["case"], logits)

    def on_validation_epoch_end(self) -> None:
        validated = gather(self.trainer, self.validated).values()
        for region in self.regions:
            self.log(f"val_dice_{region}", fmean(scores[region] for scores in validated))
        self.log("val_dice", fmean(fmean(scores.values()) for scores in validated), prog_bar=True)
        self.validated.clear()


def is_state_of(optimizer: Any) -> bool:
    """Whether what an optimizer knows of each parameter has its shape; PyTorch would notice only in
    the first step."""
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
    return {case: result for part in parts for case, result in sorted(part.items())}


class StepBatches(Sampler[list[int]]):
    """The sample numbers of each (micro-)batch of one process, from a step on. It has no length:
    Lightning then does not count what a resumed run has already seen."""

    def __init__(
        self, *, start: int, stop: int, batch_size: int, accumulate: int, rank: int, world_size: int
    ) -> None:
        self.start, self.stop, self.accumulate, self.rank, self.world_size = (
            start,
            stop,
            accumulate,
            rank,
            world_size,
        )
        self.local = share_batch(batch_size, accumulate, world_size)

    def __iter__(self) -> Iterator[list[int]]:
        for micro in range(self.start * self.accumulate, self.stop * self.accumulate):
            first = (micro * self.world_size + self.rank) * self.local
            yield list(range(first, first + self.local))


class WholeCases(Dataset[dict[str, Any]]):
    """Preprocessed held-out cases with their region masks."""

    def __init__(self, store: CaseStore, names: Sequence[str], targets: Targets) -> None:
        self.store, self.names, self.targets = store, list(names), targets

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image, label = self.store.open(self.names[index])
        masks = self.targets.masks(label)
        return {
            "image": torch.tensor(image),
            "masks": torch.from_numpy(masks),
            "case": self.names[index],
        }


def make_patches(
    preset: Preset, store: CaseStore, names: Sequence[str], steps: int
) -> PatchDataset:
    """The patches of so many steps on some cases, as a preset wants them."""
    data, training = preset.data, preset.training
    return PatchDataset(
        store,
        names,
        length=steps * training.batch_size,
        patch_size=data.patch_size,
        targets=data.targets,
        seed=training.seed,
        foreground_fraction=data.foreground_fraction,
        augmentation=data.augmentation,
        spacing_mm=data.spacing_mm,
    )


class PatchStream(LightningDataModule):
    """The training patches from the step that the run is at, and this process's share of the
    held-out cases.

    They are opened when the checkpoint that a run is resumed from is loaded.
    """

    patches: PatchDataset
    held_out: WholeCases

    def __init__(
        self,
        preset: Preset,
        store: CaseStore,
        training: Sequence[str],
        held_out: Sequence[str],
        workers: int,
    ) -> None:
        super().__init__()
        self.preset, self.store, self.names, self.workers = (
            preset,
            store,
            (training, held_out),
            workers,
        )
        self.opened = False

    def setup(self, stage: str) -> None:
        """Take the cases that the first process could prepare."""
        assert self.trainer is not None
        self.store.entries = self.trainer.strategy.broadcast(self.store.entries)
        training, held_out = (
            [name for name in names if name in self.store.entries] for names in self.names
        )
        data, settings = self.preset.data, self.preset.training
        self.patches = make_patches(self.preset, self.store, training, settings.max_steps)
        mine = (
            held_out[self.trainer.global_rank :: self.trainer.world_size] or held_out[:1]
        )  # all must validate
        self.held_out = WholeCases(self.store, mine, data.targets)

    def train_dataloader(self) -> DataLoader[dict[str, Any]]:
        assert self.trainer is not None
        self.opened = True
        batches = StepBatches(
            start=self.trainer.global_step,
            stop=self.preset.training.max_steps,
            batch_size=self.preset.training.batch_size,
            accumulate=self.trainer.accumulate_grad_batches,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )
        return DataLoader(
            self.patches,
            batch_sampler=batches,
            num_workers=self.workers,
            worker_init_fn=leave_signals_to_parent,
        )

    def val_dataloader(self) -> DataLoader[dict[str, Any]]:
        return DataLoader(self.held_out, batch_size=None, shuffle=False)


def leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C and a cluster's signal reach every process of a job; a worker that died of one would
    end the parent's last step with an error. So it ends only when the parent itself says so (where
    one can see who does, as on Linux)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
