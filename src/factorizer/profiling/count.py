"""Parameters and FLOPs of a network, counted from the built module without computing anything.

The paper's FLOPs (its Tables 1 and 2) are twice the sum of
- the multiply-adds of convolutions, linear layers and matrix products, an NMF being billed as the
  matrix products of Algorithm 1 or 2 whatever is really executed,
- 5 operations per element of every normalization layer, 4 where it has no weights to train,
- 1 more per element of the LayerNorms in Factorizer and Performer blocks, a transpose in the
  counter used.
Biases, activations, additions and softmax cost nothing. Batch 1, training mode with all outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from factorizer.nn.blocks import ResidualNMF
from factorizer.nn.nmf import NMF
from factorizer.nn.unet import UNet

aten = torch.ops.aten
# normalization operators and the position of their weight among the arguments
NORMS = {
    aten.native_layer_norm: 2,
    aten.native_group_norm: 1,
    aten.native_batch_norm: 1,
    aten._native_batch_norm_legit: 1,  # training mode, and InstanceNorm
    aten._native_batch_norm_legit_no_training: 1,
}
FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}


@dataclass(frozen=True)
class Cost:
    """Parameters, and what one forward pass takes."""

    params: int
    macs: int  # multiply-adds of convolutions, linear layers and matrix products
    norm_ops: int

    @property
    def flops(self) -> int:
        """In the paper's convention."""
        return 2 * (self.macs + self.norm_ops)


class WithoutStorage(TorchFunctionMode):
    """Tensors made inside, but for those computed from values, have a shape and no memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (
            func in FACTORIES and kwargs.get("device") is None
        ):  # layers of PyTorch pass None where nothing is asked for
            kwargs = kwargs | {"device": "meta"}
        return func(*args, **kwargs)


def build_without_storage(build: Callable[[], nn.Module]) -> nn.Module:
    """The network that `build` makes, on the meta device: no memory, no initialization, no time."""
    with WithoutStorage():
        return build().to("meta")


def count_cost(model: nn.Module, image_shape: Sequence[int]) -> Cost:
    """Count a network on the meta device for an image (C, *spatial)."""
    elements = 6 if isinstance(model, UNet) else 5

    def norm_ops(op: Any) -> Callable[..., int]:
        per_element = elements if op is aten.native_layer_norm else 5

        def ops(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
            return prod(shapes[0]) * (
                per_element if shapes[NORMS[op]] is not None else per_element - 1
            )

        return ops

    counter = FlopCounterMode(display=False, custom_mapping={op: norm_ops(op) for op in NORMS})
    textbook: list[tuple[int, int]] = []  # multiply-adds and normalization of each NMF sub-block
    handles = [
        module.register_forward_pre_hook(
            lambda m, args: textbook.append(residual_nmf_ops(m, args[0].shape))
        )
        for module in model.modules()
        if isinstance(module, ResidualNMF)
    ]
    with warnings.catch_warnings(), torch.no_grad(), counter:
        warnings.simplefilter("ignore")  # of MONAI, about nothing that concerns a count
        model.train()(torch.empty(1, *image_shape, device="meta"))
    for handle in handles:
        handle.remove()
    counts = counter.get_flop_counts()
    macs, norms = split_counts(counts["Global"])
    names = {
        f"{type(model).__name__}.{n}"
        for n, m in model.named_modules()
        if isinstance(m, ResidualNMF)
    }
    executed = [split_counts(counts[name]) for name in names]
    return Cost(
        params=sum(p.numel() for p in model.parameters()),
        macs=macs + sum(m for m, _ in textbook) - sum(m for m, _ in executed),
        norm_ops=norms + sum(n for _, n in textbook) - sum(n for _, n in executed),
    )


def count_flops(network: nn.Module, image_shape: Sequence[int]) -> float:
    """FLOPs of a network that is on some device, as it is set now, for an image (C, *spatial)."""
    return count_cost(deepcopy(network).to("meta"), image_shape).flops


def split_counts(counts: dict[Any, int]) -> tuple[int, int]:
    """Multiply-adds and normalization operations; PyTorch's counter gives the former twice."""
    norms = sum(value for op, value in counts.items() if op in NORMS)
    return (sum(counts.values()) - norms) // 2, norms


def residual_nmf_ops(module: ResidualNMF, shape: Sequence[int]) -> tuple[int, int]:
    """What the paper bills for the first line of Eq. 4 on a map (1, C, *spatial)."""
    _, channels, *size = shape
    wrapped = module.wrapped_nmf
    grids = wrapped.matricize.fitted(size).grids(size)
    head_dim = wrapped.matricize.head_dim
    factorizations = 0
    for grid in grids:
        voxels = prod(grid.window)
        matrices = prod(size) // voxels * (channels // head_dim)
        factorizations += matrices * nmf_macs(wrapped.nmf, head_dim, voxels)
    elements = prod(size) * channels
    return 2 * elements * channels + factorizations, 6 * elements


def nmf_macs(nmf: NMF, rows: int, columns: int) -> int:
    """Multiply-adds of T iterations on one matrix and of the reconstruction (Algorithms 1 and
    2)."""
    if nmf.bypass:
        return 0
    rank, size = nmf.terms, rows * columns
    update_f = size * rank + columns * rank**2  # X G, G^T G
    update_g = size * rank + rows * rank**2  # X^T F, F^T F
    if nmf.solver == "convex":  # X^T X G, X^T F, F = X W
        hals = update_g + columns * rank * (rank - 1)
        return (
            nmf.num_iters * (4 * size * rank + 2 * columns * rank**2 + hals)
            + hals
            + 2 * size * rank
        )
    if nmf.solver == "greedy":  # of each term and iteration: X v twice, X^T u and u v^T
        return rank * (4 * nmf.num_iters + 1) * size + size * rank
    others = rank if nmf.solver == "mu" else rank - 1  # columns that enter the update of one
    products = (rows + columns) * rank * others  # F (G^T G), G (F^T F)
    return nmf.num_iters * (update_f + update_g + products) + size * rank
