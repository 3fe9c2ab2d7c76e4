"""Let feature maps reuse the memory of earlier ones, instead of getting it from the system again.

Fresh memory from the system takes several times as long to fill as memory that was in use before,
because every page of it is set up on first touch. The C library gets each block beyond 32 MiB from
the system and returns it at once. A feature map of 128^3 voxels has 256 MiB, and without reuse a
quarter of a training step goes there.
"""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALLEST = 2**25  # bytes; the C library does not keep blocks of this size or larger
KEPT = 2**31  # bytes; the most that free blocks may hold

# glibc keeps freed blocks of up to 32 MiB only after one that large was freed: free one, untouched.
torch.empty(SMALLEST - 2**14, dtype=torch.uint8, device="cpu")


class BlockPool:
    """Large blocks of memory. A block comes back when its last tensor is gone, and is reused.

    Blocks may come back at any moment, in any thread, even inside `take`. There is no lock to wait
    for: all operations are those of deques, which are atomic.
    """

    def __init__(self, kept_bytes: int = KEPT) -> None:
        self.kept_bytes = kept_bytes
        self.free: defaultdict[int, deque[NDArray[np.uint8]]] = defaultdict(deque)  # by size

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A new tensor on the CPU with undefined values."""
        size = prod(shape) * dtype.itemsize
        if size < SMALLEST:
            return torch.empty(*shape, dtype=dtype, device="cpu")
        block = self.take(size)
        handle = block[:]  # lives as long as the tensors on it, unlike `block`
        weakref.finalize(handle, self.give_back, block).atexit = False
        storage = torch.from_numpy(handle).untyped_storage()
        flat = torch.empty(0, dtype=dtype, device="cpu")
        return flat.set_(storage).resize_(*shape)  # not a view of another tensor

    def take(self, size: int) -> NDArray[np.uint8]:
        """A block of `size` bytes, a free one if possible."""
        try:
            return self.free[size].pop()
        except IndexError:
            return torch.empty(size, dtype=torch.uint8, device="cpu").numpy()

    def give_back(self, block: NDArray[np.uint8]) -> None:
        """Keep a block for reuse. Blocks of other sizes go first if too much is kept."""
        if block.nbytes > self.kept_bytes:
            return
        self.free[block.nbytes].append(block)
        for size in sorted(self.free, key=lambda other: other == block.nbytes):  # this size last
            with suppress(IndexError):  # no block of this size is left
                while self.held_bytes > self.kept_bytes:
                    self.free[size].popleft()

    def clear(self) -> None:
        """Return the free blocks to the system."""
        self.free.clear()

    @property
    def held_bytes(self) -> int:
        return sum(size * len(blocks) for size, blocks in list(self.free.items()))


POOL = BlockPool()


def new_map(like: Tensor, channels: int) -> Tensor:
    """A new channels-last map (B, *spatial, channels) on the CPU with undefined values."""
    if type(like) is not Tensor:  # such as the fake tensors of PyTorch's own tools
        return like.new_empty((*like.shape[:-1], channels))
    return POOL.empty((*like.shape[:-1], channels), like.dtype)
