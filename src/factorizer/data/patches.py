"""Training patches. Sample i is a function of the seed and i alone, whatever process makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from factorizer.config import Augmentation
from factorizer.data.cache import CaseStore
from factorizer.errors import FactorizerError
from factorizer.targets import Targets

Array = NDArray[Any]
ORDER, SAMPLE = 0, 1  # two streams of random numbers


class PatchDataset(Dataset[dict[str, Any]]):
    """`length` random patches of some cases. Every case comes once before any comes again.

    A sample has the image (C, *patch), the target (regions, *patch), the case's name and the index.
    """

    def __init__(
        self,
        store: CaseStore,
        names: Sequence[str],
        *,
        length: int,
        patch_size: Sequence[int],
        targets: Targets,
        seed: int,
        foreground_fraction: float = 0.0,
        augmentation: Augmentation | None = None,
        spacing_mm: Sequence[float] | None = None,
    ) -> None:
        if not names:
            raise FactorizerError("names is empty; give at least one case to take patches from")
        if augmentation is not None:  # import MONAI, which is slow, before workers are started
            import factorizer.data.augment  # noqa: F401
        self.store = store
        self.names = list(names)
        self.length = length
        self.patch_size = tuple(patch_size)
        self.targets = targets
        self.seed = seed
        self.foreground_fraction = foreground_fraction
        self.augmentation = augmentation
        self.spacing_mm = spacing_mm

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.length:
            raise IndexError(f"index is {index}; samples go from 0 to {self.length - 1}")
        name = self.names[self.case_of(index)]
        generator = np.random.default_rng((self.seed, SAMPLE, index))
        image, label = self.store.open(name)
        image, label = cut_patch(image, label, self.patch_start(label, generator), self.patch_size)
        x, y = torch.from_numpy(image), torch.from_numpy(label)
        if self.augmentation is not None:
            x, y = self.augment(x, y, self.augmentation, generator)
        return {"image": x, "target": self.target(y), "case": name, "index": index}

    def augment(
        self, x: Tensor, y: Tensor, augmentation: Augmentation, generator: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        from factorizer.data.augment import apply_augmentation, draw_augmentation

        dims = len(self.patch_size)
        changes = draw_augmentation(augmentation, channels=len(x), dims=dims, generator=generator)
        return apply_augmentation(x, y, changes, self.spacing_mm)

    def case_of(self, index: int) -> int:
        """The number of the case of a sample. Each round has a new random order of the cases."""
        round_number, place = divmod(index, len(self.names))
        generator = np.random.default_rng((self.seed, ORDER, round_number))
        return int(generator.permutation(len(self.names))[place])

    def patch_start(self, label: Array, generator: np.random.Generator) -> tuple[int, ...]:
        """The lowest corner of the patch, anywhere or around a voxel of a region.

        All regions of the case are equally likely.
        """
        free = [max(0, n - size) for n, size in zip(label.shape, self.patch_size, strict=True)]
        start = [int(generator.integers(n + 1)) for n in free]
        is_centred = generator.random() < self.foreground_fraction
        pick = generator.random()
        if is_centred:
            present = [mask for mask in self.targets.masks(label) if mask.any()]
            if present:
                region, part = divmod(pick * len(present), 1)
                places = np.flatnonzero(present[int(region)])
                centre = np.unravel_index(places[int(part * len(places))], label.shape)
                for axis, size in enumerate(self.patch_size):
                    start[axis] = min(max(0, int(centre[axis]) - size // 2), free[axis])
        return tuple(start)

    def target(self, label: Tensor) -> Tensor:
        """Label values (*patch) -> region channels (regions, *patch), as the loss takes them."""
        return torch.from_numpy(self.targets.masks(label.numpy()).astype(np.float32))


def cut_patch(
    image: Array, label: Array, start: Sequence[int], size: Sequence[int]
) -> tuple[Array, Array]:
    """The box of `size` at `start`. A smaller image is padded (see `pad_to`)."""
    box = tuple(slice(first, first + n) for first, n in zip(start, size, strict=True))
    image_patch = np.array(image[(slice(None), *box)])
    label_patch = np.array(label[box])
    return pad_to(image_patch, size), pad_to(label_patch[None], size)[0]


def pad_to(x: Array, size: Sequence[int]) -> Array:
    """(C, *spatial) padded with zeros to at least `size`, on both sides the same."""
    return np.pad(x, [(0, 0), *padding_of(x.shape[1:], size)])


def padding_of(shape: Sequence[int], size: Sequence[int]) -> list[tuple[int, int]]:
    """Voxels to add before and after, per axis. An odd one comes after."""
    missing = [max(0, want - have) for have, want in zip(shape, size, strict=True)]
    return [(voxels // 2, voxels - voxels // 2) for voxels in missing]
