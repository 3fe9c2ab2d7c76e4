"""The stream of training patches, and the held-out cases.

Step k of a training uses the samples k B to (k + 1) B - 1, where B is the batch size. The number of
devices, workers and interruptions does not change them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset, Sampler

from factorizer.config import Preset
from factorizer.data.cache import CaseStore
from factorizer.data.patches import PatchDataset
from factorizer.targets import Targets
from factorizer.training.machine import share_batch


class StepBatches(Sampler[list[int]]):
    """The sample numbers of each part of a batch, for one process, from a step on.

    It has no length. So Lightning does not count the samples that a resumed training has seen.
    """

    def __init__(
        self, *, start: int, stop: int, batch_size: int, accumulate: int, rank: int, world_size: int
    ) -> None:
        self.start = start
        self.stop = stop
        self.accumulate = accumulate
        self.rank = rank
        self.world_size = world_size
        self.local = share_batch(batch_size, accumulate, world_size)

    def __iter__(self) -> Iterator[list[int]]:
        for part in range(self.start * self.accumulate, self.stop * self.accumulate):
            first = (part * self.world_size + self.rank) * self.local
            yield list(range(first, first + self.local))


class WholeCases(Dataset[dict[str, Any]]):
    """Preprocessed held-out cases with their region masks."""

    def __init__(self, store: CaseStore, names: Sequence[str], targets: Targets) -> None:
        self.store = store
        self.names = list(names)
        self.targets = targets

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name = self.names[index]
        image, label = self.store.open(name)
        masks = self.targets.masks(label)
        return {"image": torch.tensor(image), "masks": torch.from_numpy(masks), "case": name}


def make_patches(
    preset: Preset, store: CaseStore, names: Sequence[str], steps: int
) -> PatchDataset:
    """The patches of so many steps, drawn from some cases."""
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
    """The training patches from the current step on, and this process's share of the held-out
    cases.

    Lightning opens them after it has loaded the checkpoint to resume from.
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
        self.preset = preset
        self.store = store
        self.training_names = training
        self.held_out_names = held_out
        self.workers = workers

    def setup(self, stage: str) -> None:
        """Use the cases that the first process could prepare."""
        assert self.trainer is not None
        entries = self.trainer.strategy.broadcast(self.store.entries)
        self.store.entries = entries
        training = [name for name in self.training_names if name in entries]
        held_out = [name for name in self.held_out_names if name in entries]
        steps = self.preset.training.max_steps
        self.patches = make_patches(self.preset, self.store, training, steps)
        own = held_out[self.trainer.global_rank :: self.trainer.world_size]
        own = own or held_out[:1]  # every process must validate
        self.held_out = WholeCases(self.store, own, self.preset.data.targets)

    def train_dataloader(self) -> DataLoader[dict[str, Any]]:
        assert self.trainer is not None
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
    """Let a worker end only when its parent says so.

    Ctrl-C and the signal of a cluster reach every process of a job. A worker that ended at once
    would make the last step of its parent fail. Where the sender of a signal can be seen, as on
    Linux, SIGTERM of others is ignored too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
