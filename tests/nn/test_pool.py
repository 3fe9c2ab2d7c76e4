"""Feature maps reuse memory that was freed, and no other."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from factorizer.nn.blocks import ResidualMLP
from factorizer.nn.pool import SMALLEST, BlockPool, new_map

FLOATS = SMALLEST // 4


def test_a_block_is_used_again_once_nothing_needs_it() -> None:
    pool = BlockPool()
    first = pool.empty((FLOATS,), torch.float32)
    place, view = first.data_ptr(), first[:3]
    del first
    assert pool.empty((FLOATS,), torch.float32).data_ptr() != place  # the view still exists
    del view
    again = pool.empty((2, FLOATS), torch.float16)  # as many bytes
    assert again.data_ptr() == place
    assert again.shape == (2, FLOATS)
    assert again.dtype == torch.float16


def test_what_autograd_saved_is_not_used_again() -> None:
    pool = BlockPool()
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    x = pool.empty((FLOATS // 2,), torch.float64).fill_(3)
    y = (x * weight).sum()
    del x  # only autograd has it now
    pool.empty((FLOATS // 2,), torch.float64).fill_(-1)
    y.backward()
    assert weight.grad == 3 * (FLOATS // 2)


@pytest.mark.slow
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


def test_a_block_beyond_what_may_be_kept_does_not_displace_others() -> None:
    pool = BlockPool(kept_bytes=2 * SMALLEST)
    small, large = pool.empty((SMALLEST,), torch.uint8), pool.empty((3 * SMALLEST,), torch.uint8)
    del small
    del large
    gc.collect()
    assert pool.held_bytes == SMALLEST
    pool.clear()
    assert pool.held_bytes == 0


def test_a_large_map_may_be_changed_in_place_like_a_small_one() -> None:
    """Autograd refuses this for views, and it is not a view."""
    layer = nn.Sequential(ResidualMLP(32, 32), nn.LeakyReLU(inplace=True))
    y = layer(torch.randn(1, 32, 64, 64, 64))  # exactly the size from which the pool is used
    assert y.numel() * 4 >= SMALLEST
    y.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_fake_tensors_pass() -> None:
    with FakeTensorMode():
        y = new_map(torch.zeros(1, 128, 128, 128, 8), 8)
    assert y.shape == (1, 128, 128, 128, 8)
