"""A network on a whole image, window by window (Sec. 4.2), with memory for a few layers of windows
only.

Windows are laid as MONAI lays them, the last flush with the end, and where they overlap logits are
averaged. Layers of windows follow the first axis: as soon as no further window touches a row it is
given out, so that a large image never needs the logits of all its voxels at once.
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
Advance = Callable[[], object]
SIGMA = 0.125  # width of the Gaussian, as a share of the window
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Sliding:
    """How windows are laid over an image: their size, how much neighbours overlap, and how they are
    averaged.

    `batch_size` windows are computed at a time, on the network's `device`.
    """

    window: tuple[int, ...]
    overlap: float
    blending: Blending = "constant"
    batch_size: int = 1
    device: torch.device | str = "cpu"

    def probabilities(
        self, network: Network, image: Tensor, advance: Advance = lambda: None
    ) -> Tensor:
        """Image (C, *spatial) -> probabilities (regions, *spatial) of the whole image, on the
        image's device."""
        slabs = [slab.sigmoid().to(image.device) for slab in self.slabs(network, image, advance)]
        return torch.cat(slabs, dim=1)

    def slabs(
        self, network: Network, image: Tensor, advance: Advance = lambda: None
    ) -> Iterator[Tensor]:
        """Image (C, *spatial) -> the network's outputs, averaged over windows, as consecutive rows
        (outputs, rows, *rest).

        An image smaller than the window is padded as in training; `advance` is called after each
        window.
        """
        size, window, device = image.shape[1:], self.window, self.device
        padding = padding_of(size, window)
        if any(n for pair in padding for n in pair):
            image = F.pad(image, [n for pair in reversed(padding) for n in pair])
        layers, *others = window_starts(image.shape[1:], window, self.overlap)
        places = list(product(*others))
        weight = importance(window, self.blending).to(device)
        plane = tuple(image.shape[2:])
        total = torch.zeros(0)
        weights = torch.zeros(window[0], *plane, device=device)
        inside = tuple(
            slice(before, before + n) for (before, _), n in zip(padding, size, strict=True)
        )
        for layer, following in zip(layers, [*layers[1:], image.shape[1]], strict=True):
            for group in (
                places[i : i + self.batch_size] for i in range(0, len(places), self.batch_size)
            ):
                boxes = [
                    tuple(slice(a, a + n) for a, n in zip(place, window[1:], strict=True))
                    for place in group
                ]
                patches = torch.stack(
                    [image[(slice(None), slice(layer, layer + window[0]), *box)] for box in boxes]
                )
                with torch.inference_mode():
                    outputs = network(patches.to(device, non_blocking=True)).float()
                if not total.numel():
                    total = torch.zeros(outputs.shape[1], window[0], *plane, device=device)
                for box, values in zip(boxes, outputs, strict=True):
                    total[(slice(None), slice(None), *box)] += values * weight
                    weights[(slice(None), *box)] += weight
                    advance()
            done = following - layer
            first, last = (max(0, min(n - layer, done)) for n in (inside[0].start, inside[0].stop))
            if last > first:
                finished = total[:, first:last] / weights[first:last]
                yield finished[(slice(None), slice(None), *inside[1:])]
            total, weights = shift(total, done, dim=1), shift(weights, done, dim=0)

    def count(self, size: Sequence[int]) -> int:
        """The windows of an image of this size."""
        padded = [max(n, w) for n, w in zip(size, self.window, strict=True)]
        return prod(len(starts) for starts in window_starts(padded, self.window, self.overlap))


def window_starts(size: Sequence[int], window: Sequence[int], overlap: float) -> list[list[int]]:
    """Where windows begin along each axis, at least one voxel apart."""
    starts = []
    for n, w in zip(size, window, strict=True):
        step = max(1, int(w * (1 - overlap)))
        starts.append([min(i * step, n - w) for i in range(ceil((n - w) / step) + 1)])
    return starts


def importance(window: Sequence[int], blending: Blending) -> Tensor:
    """The weight of each voxel of a window in the average: MONAI's, computed here as importing
    MONAI takes a second."""
    if blending == "constant":
        return torch.ones(tuple(window))
    weight = torch.ones(())
    for size in window:
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
    flips = [
        [axis + 2 for place, axis in enumerate(axes) if bits >> place & 1]
        for bits in range(2 ** len(axes))
    ]

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
