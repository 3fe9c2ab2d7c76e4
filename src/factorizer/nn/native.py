"""The residual NMF of rank one in C++ (src/factorizer/native), for CPUs.

It computes the first line of Eq. 4 on a whole map: layer norm, projection, ReLU, rank-one NMF of
every window of every grid, out-projection, and the residual. PyTorch does the norm and the first
projection; C++ reads each window of the result once, works on it in the cache, and writes it once.
Only the input is kept for the backward pass, which computes the rest again.

The library is built when the package is installed. Where it is missing, or turned off by
FACTORIZER_NATIVE=0, the same equations run in PyTorch. `factorizer doctor` tells which.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from factorizer.nn.matricize import Grid
from factorizer.nn.nmf import full_precision
from factorizer.nn.pool import new_map

FOLDER = Path(__file__).parents[1] / "native"
SWITCH = "FACTORIZER_NATIVE"  # 0 turns it off; an instruction set chooses a lesser one
INSTRUCTIONS = ("baseline", "avx2", "avx512")  # from the least to the best
NAMES = {torch.float32: "float", torch.float64: "double"}
MOST_VOXELS = 4096  # of a window; larger ones do not stay in the cache


class Cut(ctypes.Structure):
    """How a map is cut into windows: `Cut` of kernels.hpp."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("size", ctypes.c_int64 * 3),
        ("window", ctypes.c_int64 * 3),
        ("channels", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("num_iters", ctypes.c_int64),
        ("grids", ctypes.c_int64),
        ("shifts", ctypes.POINTER(ctypes.c_int64)),
        ("threads", ctypes.c_int64),
    )


class Library(NamedTuple):
    """The loaded library, and the instruction set that it uses."""

    functions: ctypes.CDLL
    instructions: str


@cache
def load_library() -> Library | None:
    """The library, or None if it is turned off or was not built."""
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0":
        return None
    for file in sorted(FOLDER.glob("core*.so")):
        try:
            functions = ctypes.CDLL(str(file))  # it uses the threads of PyTorch's OpenMP
        except OSError:
            continue
        functions.factorizer_best_instructions.restype = ctypes.c_char_p
        best = functions.factorizer_best_instructions().decode()
        known = INSTRUCTIONS[: INSTRUCTIONS.index(best) + 1]
        chosen = wanted if wanted in known else best
        functions.factorizer_use_instructions(chosen.encode())
        return Library(functions, chosen)
    return None


def describe() -> str:
    """The instruction set that the library uses. Empty if the library is not in use."""
    library = load_library()
    return "" if library is None else f"in use, for {library.instructions}"


def serves(x: Tensor, grids: Sequence[Grid]) -> bool:
    """Whether the library can compute a map (B, *spatial, C) cut by these grids."""
    fits = x.dtype in NAMES and prod(grids[0].window) <= MOST_VOXELS
    return fits and has_memory(x) and load_library() is not None


def has_memory(x: Tensor) -> bool:
    """Whether x is a tensor whose numbers can be read. Those of PyTorch's own tools are not."""
    is_real = type(x).__torch_dispatch__ is Tensor.__torch_dispatch__
    return is_real and not torch._C._functorch.is_functorch_wrapped_tensor(x) and x.numel() > 0


def residual_nmf(
    x: Tensor,
    norm: Sequence[Tensor],
    in_weight: Tensor,
    out_weight: Tensor,
    bias: Tensor,
    g0: Tensor,
    *,
    epsilon: float,
    head_dim: int,
    num_iters: int,
    grids: Sequence[Grid],
) -> Tensor:
    """WrappedNMF(LayerNorm(x)) + x of a map x (B, *spatial, C), channels last.

    `norm` are the weight and bias of the norm, and g0 (N, 1) is the initial factor.
    """
    settings = Settings(epsilon, head_dim, num_iters, tuple(grids))
    tensors = (x.contiguous(), *norm, in_weight, out_weight, bias, g0)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _ResidualNMF.apply(settings, *tensors)
    return compute(settings, *tensors)


class Settings:
    """What a layer computes, besides its weights."""

    def __init__(
        self, epsilon: float, head_dim: int, num_iters: int, grids: tuple[Grid, ...]
    ) -> None:
        self.epsilon = epsilon
        self.head_dim = head_dim
        self.num_iters = num_iters
        self.grids = grids

    def cut_of(self, x: Tensor) -> Cut:
        """The cut of a map (B, *spatial, C). A 2D map has a first axis of one voxel."""
        batch, *size, channels = x.shape
        pad = 3 - len(size)
        shifts: list[int] = []
        for grid in self.grids:
            shifts += [0] * pad + list(grid.shift)
        return Cut(
            batch,
            (ctypes.c_int64 * 3)(*[1] * pad, *size),
            (ctypes.c_int64 * 3)(*[1] * pad, *self.grids[0].window),
            channels,
            self.head_dim,
            self.num_iters,
            len(self.grids),
            (ctypes.c_int64 * len(shifts))(*shifts),
            torch.get_num_threads(),
        )


def compute(
    settings: Settings,
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    in_weight: Tensor,
    out_weight: Tensor,
    bias: Tensor,
    g0: Tensor,
) -> Tensor:
    shape = x.shape[-1:]
    z = F.linear(F.layer_norm(x, shape, norm_weight, norm_bias, settings.epsilon), in_weight)
    y = new_map(x, x.shape[-1]).copy_(x)
    call("forward", settings.cut_of(x), z, g0, out_weight.t().contiguous(), bias, y)
    return y


def call(name: str, cut: Cut, *tensors: Tensor) -> None:
    """Call a function of the library with contiguous tensors."""
    library = load_library()
    assert library is not None
    function = getattr(library.functions, f"factorizer_{name}_{NAMES[tensors[0].dtype]}")
    assert all(tensor.is_contiguous() for tensor in tensors)
    function(ctypes.byref(cut), *[ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors])


class _ResidualNMF(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Settings, *tensors: Tensor) -> Tensor:
        ctx.settings = settings
        ctx.save_for_backward(*tensors)
        return compute(settings, *tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        with full_precision(dy):
            return None, *gradients(ctx.settings, dy.contiguous(), *ctx.saved_tensors), None


def gradients(
    settings: Settings,
    dy: Tensor,
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    in_weight: Tensor,
    out_weight: Tensor,
    bias: Tensor,
    g0: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients of everything except g0."""
    shape = x.shape[-1:]
    normed, mean, rstd = torch.native_layer_norm(x, shape, norm_weight, norm_bias, settings.epsilon)
    z = F.linear(normed, in_weight)
    dz = new_map(x, x.shape[-1]).zero_()
    dweight = torch.zeros_like(out_weight)  # transposed
    cut = settings.cut_of(x)
    call("backward", cut, z, g0, out_weight.t().contiguous(), dy, dz, dweight)
    del z
    din = dz.flatten(0, -2).mT @ normed.flatten(0, -2)
    dnormed = F.linear(dz, in_weight.t())
    del dz
    dx, dnorm_weight, dnorm_bias = torch.ops.aten.native_layer_norm_backward(
        dnormed, x, shape, mean, rstd, norm_weight, norm_bias, [True, True, True]
    )
    return dx.add_(dy), dnorm_weight, dnorm_bias, din, dweight.t(), dy.flatten(0, -2).sum(0)
