"""Training patches: sample number i is a function of the seed and i alone, whatever process makes
it."""

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
    """`length` random patches of some cases: every case once before any comes again.

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
            raise FactorizerError("there is no case to take patches from")
        if (
            augmentation is not None
        ):  # MONAI is slow to import: not for prediction, and before there are workers
            import factorizer.data.augment  # noqa: F401
        self.store, self.names, self.length = store, list(names), length
        self.patch_size, self.seed = tuple(patch_size), seed
        self.targets = targets
        self.foreground_fraction, self.augmentation, self.spacing_mm = (
            foreground_fraction,
            augmentation,
            spacing_mm,
        )

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.length:
            raise IndexError(f"there are {self.length} samples; {index} is not one")
        name = self.names[self.case_of(index)]
        generator = np.random.default_rng((self.seed, SAMPLE, index))
        image, label = self.store.open(name)
        image, label = cut_patch(image, label, self.patch_start(label, generator), self.patch_size)
        x, y = torch.from_numpy(image), torch.from_numpy(label)
        if self.augmentation is not None:
            from factorizer.data.augment import apply_augmentation, draw_augmentation

            dims = len(self.patch_size)
            changes = draw_augmentation(
                self.augmentation, channels=len(image), dims=dims, generator=generator
            )
            x, y = apply_augmentation(x, y, changes, self.spacing_mm)
        return {"image": x, "target": self.target(y), "case": name, "index": index}

    def case_of(self, index: int) -> int:
        """Which case a sample is from: the cases in an order drawn anew for every round."""
        round_number, place = divmod(index, len(self.names))
        return int(
            np.random.default_rng((self.seed, ORDER, round_number)).permutation(len(self.names))[
                place
            ]
        )

    def patch_start(self, label: Array, generator: np.random.Generator) -> tuple[int, ...]:
        """The lowest corner of the patch, anywhere or around a voxel of a region, each that is
        there as often."""
        free = [max(0, n - size) for n, size in zip(label.shape, self.patch_size, strict=True)]
        start = [int(generator.integers(n + 1)) for n in free]
        centred = generator.random() < self.foreground_fraction
        pick = generator.random()
        if centred:
            masks = self.targets.masks(label)
            present = [mask for mask in masks if mask.any()]
            if present:
                region, part = divmod(pick * len(present), 1)
                places = np.flatnonzero(present[int(region)])
                centre = np.unravel_index(places[int(part * len(places))], label.shape)
                start = [
                    min(max(0, int(c) - size // 2), n)
                    for c, size, n in zip(centre, self.patch_size, free, strict=True)
                ]
        return tuple(start)

    def target(self, label: Tensor) -> Tensor:
        """Label values (*patch) -> region channels (regions, *patch), as the loss takes them."""
        return torch.from_numpy(self.targets.masks(label.numpy()).astype(np.float32))


def cut_patch(
    image: Array, label: Array, start: Sequence[int], size: Sequence[int]
) -> tuple[Array, Array]:
    """The box of `size` at `start`; an image that is smaller is padded (see `pad_to`)."""
    box = tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
    return pad_to(np.array(image[(slice(None), *box)]), size), pad_to(
        np.array(label[box])[None], size
    )[0]


def pad_to(x: Array, size: Sequence[int]) -> Array:
    """(C, *spatial) padded with zeros on both sides alike to at least `size`."""
    return np.pad(x, [(0, 0), *padding_of(x.shape[1:], size)])


def padding_of(shape: Sequence[int], size: Sequence[int]) -> list[tuple[int, int]]:
    """Voxels to add before and after, per axis; the odd one comes after."""
    missing = [max(0, want - have) for have, want in zip(shape, size, strict=True)]
    return [(m // 2, m - m // 2) for m in missing]
