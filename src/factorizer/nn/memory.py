"""Let feature maps use memory again that earlier ones freed, instead of getting it from the system
each time.

Memory fresh from the system costs several times as much to fill as memory that was in use before,
because every page of it is set up on first touch. The C library gets each block beyond 32 MiB anew
and gives it back at once, and a feature map of 128^3 voxels is 256 MiB: a quarter of a training
step went there.
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

SMALLEST = 2**25  # bytes from which the C library gets a block anew each time
KEPT = 2**31  # bytes of free blocks that are kept at most

# glibc only keeps a freed block of up to 32 MiB once it has seen one that large freed; free one,
# untouched.
torch.empty(SMALLEST - 2**14, dtype=torch.uint8, device="cpu")


class BlockPool:
    """Large blocks of memory that come back when the last tensor on them is gone, to be used again.

    Blocks may come back at any moment, in any thread, even inside `take`: there is no lock to wait
    for, only operations on deques, which are atomic.
    """

    def __init__(self, kept_bytes: int = KEPT) -> None:
        self.kept_bytes = kept_bytes
        self.free: defaultdict[int, deque[NDArray[np.uint8]]] = defaultdict(deque)  # by size

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU to be filled."""
        size = prod(shape) * dtype.itemsize
        if size < SMALLEST:
            return torch.empty(*shape, dtype=dtype, device="cpu")
        block = self.take(size)
        handle = block[:]  # an object of its own, that lives as long as tensors on it do
        weakref.finalize(handle, self.give_back, block).atexit = False
        storage = torch.from_numpy(handle).untyped_storage()
        flat = torch.empty(0, dtype=dtype, device="cpu").set_(
            storage
        )  # a tensor of its own, no view of another
        return flat.resize_(*shape)

    def take(self, size: int) -> NDArray[np.uint8]:
        try:
            return self.free[size].pop()
        except IndexError:
            return torch.empty(size, dtype=torch.uint8, device="cpu").numpy()

    def give_back(self, block: NDArray[np.uint8]) -> None:
        if block.nbytes > self.kept_bytes:
            return
        self.free[block.nbytes].append(block)
        for size in sorted(self.free, key=lambda other: other == block.nbytes):  # this size last
            with suppress(IndexError):  # until there is none of this size
                while self.held_bytes > self.kept_bytes:
                    self.free[size].popleft()

    def clear(self) -> None:
        """Give the free blocks back to the system."""
        self.free.clear()

    @property
    def held_bytes(self) -> int:
        return sum(size * len(blocks) for size, blocks in list(self.free.items()))


POOL = BlockPool()


def new_map(like: Tensor, channels: int) -> Tensor:
    """A channels-last map (B, *spatial, channels) on the CPU, to be filled."""
    if type(like) is not Tensor:  # such as the fake tensors of PyTorch's own tools
        return like.new_empty((*like.shape[:-1], channels))
    return POOL.empty((*like.shape[:-1], channels), like.dtype)
