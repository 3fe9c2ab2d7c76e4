"""A network on a whole image, patch by patch (Sec. 4.2: a sliding window).

Patches are placed as MONAI places them, the last one flush with the end of the image. Where patches
overlap, logits are averaged. Patches with the same place along the first axis are a layer. As soon
as no later patch touches a row, the row is given out. So a large image never needs the logits of
all its voxels at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from factorizer.data.patches import padding_of

Network = Callable[[Tensor], Tensor]
Blending = Literal["constant", "gaussian"]
Box = tuple[slice, ...]  # a part of an image, axis by axis
SIGMA = 0.125  # width of the Gaussian, as a share of the patch
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Sliding:
    """How patches are placed over an image and averaged.

    `overlap` is the share of a patch that its neighbour covers too. The network computes
    `batch_size` patches at a time, on its `device`.
    """

    patch_size: tuple[int, ...]
    overlap: float
    blending: Blending = "constant"
    batch_size: int = 1
    device: torch.device | str = "cpu"

    def probabilities(
        self, network: Network, image: Tensor, advance: Callable[[], object] = lambda: None
    ) -> Tensor:
        """Image (C, *spatial) -> probabilities (regions, *spatial) on the image's device."""
        slabs = [slab.sigmoid().to(image.device) for slab in self.slabs(network, image, advance)]
        return torch.cat(slabs, dim=1)

    def slabs(
        self, network: Network, image: Tensor, advance: Callable[[], object] = lambda: None
    ) -> Iterator[Tensor]:
        """Image (C, *spatial) -> averaged outputs of the network, as consecutive rows
        (outputs, rows, *rest).

        An image smaller than the patch is padded as in training. `advance` is called after each
        patch.
        """
        rows_inside, *plane_inside = place_in_padded(image.shape[1:], self.patch_size)
        image = pad(image, self.patch_size)
        starts, *starts_in_plane = patch_starts(image.shape[1:], self.patch_size, self.overlap)
        boxes = boxes_at(starts_in_plane, self.patch_size[1:])
        averages = Averages(self.patch_size, image.shape[2:], self.blending, self.device)
        for start, following in zip(starts, [*starts[1:], image.shape[1]], strict=True):
            layer = image[:, start : start + self.patch_size[0]]
            for box, output in self.outputs(network, layer, boxes):
                averages.add(box, output)
                advance()
            finished = following - start  # rows that no later layer touches
            first = max(0, min(rows_inside.start - start, finished))
            last = max(0, min(rows_inside.stop - start, finished))
            if last > first:
                yield averages.rows(first, last)[(slice(None), slice(None), *plane_inside)]
            averages.drop_rows(finished)

    def outputs(
        self, network: Network, layer: Tensor, boxes: Sequence[Box]
    ) -> Iterator[tuple[Box, Tensor]]:
        """The patches of a layer (C, rows, *plane), and the network's output for each."""
        for first in range(0, len(boxes), self.batch_size):
            group = boxes[first : first + self.batch_size]
            patches = torch.stack([layer[(slice(None), slice(None), *box)] for box in group])
            with torch.inference_mode():
                outputs = network(patches.to(self.device, non_blocking=True)).float()
            yield from zip(group, outputs, strict=True)

    def count(self, size: Sequence[int]) -> int:
        """How many patches an image of this size takes."""
        padded = [max(pair) for pair in zip(size, self.patch_size, strict=True)]
        starts = patch_starts(padded, self.patch_size, self.overlap)
        return prod(len(along_axis) for along_axis in starts)


class Averages:
    """Weighted sums of outputs, and the sums of their weights, of the rows of one layer."""

    def __init__(
        self,
        patch_size: tuple[int, ...],
        plane: tuple[int, ...],
        blending: Blending,
        device: torch.device | str,
    ) -> None:
        self.shape = (patch_size[0], *plane)
        self.weight = importance(patch_size, blending).to(device)
        self.weights = torch.zeros(self.shape, device=device)
        self.total = torch.zeros(0)  # the number of outputs is not known before the first

    def add(self, box: Box, output: Tensor) -> None:
        """Add the output (outputs, *patch) of the patch that is at a box of the plane."""
        if not self.total.numel():
            self.total = torch.zeros(len(output), *self.shape, device=self.weights.device)
        self.total[(slice(None), slice(None), *box)] += output * self.weight
        self.weights[(slice(None), *box)] += self.weight

    def rows(self, first: int, last: int) -> Tensor:
        """The averages of some rows (outputs, rows, *plane)."""
        return self.total[:, first:last] / self.weights[first:last]

    def drop_rows(self, number: int) -> None:
        """Forget the first rows, and make room for as many at the end."""
        self.total = shift(self.total, number, dim=1)
        self.weights = shift(self.weights, number, dim=0)


def pad(image: Tensor, patch_size: Sequence[int]) -> Tensor:
    """(C, *spatial) padded with zeros to at least the size of a patch."""
    padding = padding_of(image.shape[1:], patch_size)
    if not any(map(any, padding)):
        return image
    sizes: list[int] = []
    for before, after in reversed(padding):  # PyTorch names the last axis first
        sizes += (before, after)
    return F.pad(image, sizes)


def place_in_padded(size: Sequence[int], patch_size: Sequence[int]) -> Box:
    """Where an image is after `pad`."""
    pairs = zip(padding_of(size, patch_size), size, strict=True)
    return tuple(slice(before, before + length) for (before, _), length in pairs)


def patch_starts(size: Sequence[int], patch_size: Sequence[int], overlap: float) -> list[list[int]]:
    """Where patches start along each axis, at least one voxel apart."""
    starts = []
    for length, patch in zip(size, patch_size, strict=True):
        step = max(1, int(patch * (1 - overlap)))
        number = ceil((length - patch) / step) + 1
        starts.append([min(index * step, length - patch) for index in range(number)])
    return starts


def boxes_at(starts: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[Box]:
    """A box of some size at every combination of starts along the axes."""
    boxes = []
    for corner in product(*starts):
        pairs = zip(corner, sizes, strict=True)
        boxes.append(tuple(slice(start, start + length) for start, length in pairs))
    return boxes


def importance(patch_size: Sequence[int], blending: Blending) -> Tensor:
    """The weight of each voxel of a patch in the average.

    The weights are MONAI's. They are computed here because importing MONAI takes a second.
    """
    if blending == "constant":
        return torch.ones(tuple(patch_size))
    weight = torch.ones(())
    for size in patch_size:
        distance = torch.arange(size, dtype=torch.float32) - (size - 1) / 2
        weight = weight[..., None] * torch.exp(distance**2 / (-2 * (SIGMA * size) ** 2))
    return weight.clamp_min(LEAST_WEIGHT)


def shift(x: Tensor, by: int, dim: int) -> Tensor:
    """Drop the first rows of an axis and add as many zeros at its end."""
    kept = x.narrow(dim, by, x.shape[dim] - by)
    return torch.cat((kept, torch.zeros_like(x.narrow(dim, 0, by))), dim)


def mirror(network: Network, axes: Sequence[int]) -> Network:
    """Average the logits over all mirror images along some spatial axes (test-time
    augmentation)."""
    flips: list[list[int]] = [[]]
    for axis in axes:
        flips += [[*flipped, axis + 2] for flipped in flips]

    def predict(x: Tensor) -> Tensor:
        total = network(x)
        for flipped in flips[1:]:
            total = total + network(x.flip(flipped)).flip(flipped)
        return total / len(flips)

    return predict


def average(networks: Sequence[Network]) -> Network:
    """Average the logits of several networks: an ensemble."""
    if len(networks) == 1:
        return networks[0]

    def predict(x: Tensor) -> Tensor:
        total = networks[0](x)
        for network in networks[1:]:
            total = total + network(x)
        return total / len(networks)

    return predict
