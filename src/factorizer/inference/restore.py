"""Predictions back onto the grid of the image, slab by slab.

`preprocess.restore` does the same with a whole array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from factorizer.data.images import canonical_grid
from factorizer.data.preprocess import LINEAR, Frame


def restore_slabs(slabs: Iterable[Tensor], frame: Frame) -> Iterator[Tensor]:
    """(regions, rows, *rest) of the preprocessed array -> the same of the image in canonical
    orientation.

    Values outside the crop are zero. Between voxels, values are linear.
    """
    shape = canonical_grid(frame.grid).shape
    whole = uncrop_slabs(slabs, frame)
    if shape == frame.resampled_shape:
        return whole
    return resample_slabs(whole, frame.resampled_shape[0], shape)


def uncrop_slabs(slabs: Iterable[Tensor], frame: Frame) -> Iterator[Tensor]:
    """The rows before, inside and after the box of the crop."""
    rows, *plane = frame.resampled_shape
    first, *inside = frame.box
    regions = 0
    for number, slab in enumerate(slabs):
        regions = len(slab)
        if number == 0 and first.start:
            yield torch.zeros(regions, first.start, *plane)
        whole = torch.zeros(regions, slab.shape[1], *plane)
        whole[(slice(None), slice(None), *inside)] = slab.cpu()
        yield whole
    if rows > first.stop:
        yield torch.zeros(regions, rows - first.stop, *plane)


def resample_slabs(slabs: Iterable[Tensor], rows: int, shape: tuple[int, ...]) -> Iterator[Tensor]:
    """`rows` rows in slabs -> `shape`.

    Values are linear within a row, then between the two rows around each new one.
    """
    places = ((torch.arange(shape[0]) + 0.5) * (rows / shape[0]) - 0.5).clamp(min=0)
    low = places.long().clamp(max=rows - 1)
    high = (low + 1).clamp(max=rows - 1)
    share = (places - low).float()
    kept = torch.zeros(0)  # the rows that are still needed
    begin = 0  # the number of the first of them
    written = 0  # how many new rows were given out
    for slab in slabs:
        resized = resize_plane(slab, shape[1:])
        kept = torch.cat((kept, resized), dim=1) if kept.numel() else resized
        ready = int(torch.searchsorted(high, begin + kept.shape[1]))
        if ready > written:
            now = slice(written, ready)
            weight = share[now].reshape(1, -1, *[1] * (len(shape) - 1))
            yield torch.lerp(kept[:, low[now] - begin], kept[:, high[now] - begin], weight)
            written = ready
        if written < shape[0]:
            drop = min(int(low[written]) - begin, kept.shape[1])
            kept = kept[:, drop:]
            begin += drop


def resize_plane(slab: Tensor, plane: tuple[int, ...]) -> Tensor:
    """(regions, rows, *rest) -> (regions, rows, *plane)."""
    mode = "linear" if len(plane) == 1 else LINEAR[2]
    return F.interpolate(slab.movedim(1, 0), plane, mode=mode, align_corners=False).movedim(0, 1)
