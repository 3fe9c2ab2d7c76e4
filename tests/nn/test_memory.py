"""Feature maps reuse freed memory, and only that."""

from __future__ import annotations

import gc

import pytest
import torch

from factorizer.nn.memory import SMALLEST, BlockPool, new_map

FLOATS = SMALLEST // 4


def test_a_block_is_used_again_once_nothing_needs_it() -> None:
    pool = BlockPool()
    first = pool.empty((FLOATS,), torch.float32)
    place, view = first.data_ptr(), first[:3]
    del first
    assert pool.empty((FLOATS,), torch.float32).data_ptr() != place  # the view is still there
    del view
    again = pool.empty((2, FLOATS), torch.float16)  # as many bytes
    assert again.data_ptr() == place
    assert again.shape == (2, FLOATS)
    assert again.dtype == torch.float16


def test_what_autograd_saved_is_not_used_again() -> None:
    pool = BlockPool()
    x = pool.empty((FLOATS,), torch.float32).fill_(3).requires_grad_()
    y = (x * x).sum()
    leaf = x
    del x
    pool.empty((FLOATS,), torch.float32).fill_(-1)
    y.backward()
    assert leaf.grad is not None
    assert (leaf.grad == 6).all()


def test_no_more_is_kept_than_allowed_and_other_sizes_go_first() -> None:
    pool = BlockPool(kept_bytes=3 * SMALLEST)
    blocks = [pool.empty((size,), torch.uint8) for size in (2 * SMALLEST, SMALLEST, SMALLEST)]
    assert pool.held_bytes == 0
    while blocks:
        blocks.pop(0)
        gc.collect()
        assert pool.held_bytes <= pool.kept_bytes
    assert [len(pool.free[size]) for size in (SMALLEST, 2 * SMALLEST)] == [2, 0]


def test_small_tensors_do_not_come_from_the_pool() -> None:
    pool = BlockPool()
    pool.empty((10,), torch.float32)
    assert pool.held_bytes == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_new_map_has_the_shape_and_type_wanted(dtype: torch.dtype) -> None:
    y = new_map(torch.zeros(2, 3, 4, 5, 8, dtype=dtype), 16)
    assert y.shape == (2, 3, 4, 5, 16)
    assert y.dtype == dtype
    assert y.is_contiguous()
