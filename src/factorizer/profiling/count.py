"""Parameters and FLOPs of a network, counted from the built module without computing anything.

The paper's FLOPs (its Tables 1 and 2) are twice the sum of
- the multiply-adds of convolutions, linear layers and matrix products. An NMF is billed as the
  matrix products of Algorithm 1 or 2, whatever is executed,
- 5 operations per element of every normalization layer, 4 if it has no weights to train,
- 1 more per element of the LayerNorms in Factorizer and Performer blocks, as the counter of the
  paper bills a transpose there.
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

from factorizer.nn.blocks import ResidualNMF, nmf_blocks
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
    """The parameters of a network and the operations of one forward pass."""

    params: int
    macs: int  # multiply-adds of convolutions, linear layers and matrix products
    norm_ops: int

    @property
    def flops(self) -> int:
        """FLOPs as the paper counts them."""
        return 2 * (self.macs + self.norm_ops)


class WithoutStorage(TorchFunctionMode):
    """Inside it, new tensors have a shape and no memory, except those computed from values."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # the layers of PyTorch pass None if no device was asked for
        if func in FACTORIES and kwargs.get("device") is None:
            kwargs = kwargs | {"device": "meta"}
        return func(*args, **kwargs)


def build_without_storage(build: Callable[[], nn.Module]) -> nn.Module:
    """The network that `build` makes, on the meta device: it takes no memory and no time."""
    with WithoutStorage():
        return build().to("meta")


def count_cost(model: nn.Module, image_shape: Sequence[int]) -> Cost:
    """Count a network on the meta device for an image (C, *spatial)."""
    layer_norm_ops = 6 if isinstance(model, UNet) else 5
    counter = FlopCounterMode(display=False, custom_mapping=norm_counters(layer_norm_ops))
    blocks = nmf_blocks(model)
    billed: list[tuple[int, int]] = []  # multiply-adds and normalization of each NMF sub-block

    def bill(block: ResidualNMF, inputs: Any) -> None:
        billed.append(residual_nmf_ops(block, inputs[0].shape))

    hooks = [block.register_forward_pre_hook(bill) for block in blocks.values()]
    with warnings.catch_warnings(), torch.no_grad(), counter:
        warnings.simplefilter("ignore")  # MONAI's are about nothing that a count depends on
        model.train()(torch.empty(1, *image_shape, device="meta"))
    for hook in hooks:
        hook.remove()
    counts = counter.get_flop_counts()
    macs, norm_ops = split_counts(counts["Global"])
    for block_macs, block_norm_ops in billed:
        macs += block_macs
        norm_ops += block_norm_ops
    for name in blocks:  # what the sub-blocks executed is billed already
        executed_macs, executed_norm_ops = split_counts(counts[f"{type(model).__name__}.{name}"])
        macs -= executed_macs
        norm_ops -= executed_norm_ops
    params = sum(p.numel() for p in model.parameters())
    return Cost(params=params, macs=macs, norm_ops=norm_ops)


def norm_counters(layer_norm_ops: int) -> dict[Any, Callable[..., int]]:
    """For each normalization operator a function from its arguments to the operations billed.

    `layer_norm_ops` is the price of one element of a LayerNorm with weights.
    """

    def count_norm(op: Any) -> Callable[..., int]:
        per_element = layer_norm_ops if op is aten.native_layer_norm else 5

        def norm_ops(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
            has_weights = shapes[NORMS[op]] is not None
            return prod(shapes[0]) * (per_element if has_weights else per_element - 1)

        return norm_ops

    return {op: count_norm(op) for op in NORMS}


def count_flops(network: nn.Module, image_shape: Sequence[int]) -> float:
    """FLOPs of a network as it is now, for an image (C, *spatial)."""
    return count_cost(deepcopy(network).to("meta"), image_shape).flops


def split_counts(counts: dict[Any, int]) -> tuple[int, int]:
    """Multiply-adds and normalization operations. PyTorch's counter gives the former twice."""
    norms = sum(value for op, value in counts.items() if op in NORMS)
    return (sum(counts.values()) - norms) // 2, norms


def residual_nmf_ops(module: ResidualNMF, shape: Sequence[int]) -> tuple[int, int]:
    """Multiply-adds and normalization that the paper bills for the first line of Eq. 4.

    The map is (1, C, *spatial).
    """
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
    """Multiply-adds of T iterations on one matrix and of F G^T (Algorithms 1 and 2)."""
    if nmf.bypass:
        return 0
    rank, size = nmf.terms, rows * columns
    product = size * rank  # F G^T
    if nmf.solver == "greedy":  # for each term and iteration: X v twice, X^T u and u v^T
        return rank * (4 * nmf.num_iters + 1) * size + product
    update_f = size * rank + columns * rank**2  # X G, G^T G
    update_g = size * rank + rows * rank**2  # X^T F, F^T F
    if nmf.solver == "convex":
        hals = update_g + columns * rank * (rank - 1)
        mixture = 4 * size * rank + 2 * columns * rank**2  # X^T X G, X^T F, F = X W
        return nmf.num_iters * (mixture + hals) + hals + size * rank + product
    others = rank if nmf.solver == "mu" else rank - 1  # columns that enter the update of one
    products = (rows + columns) * rank * others  # F (G^T G), G (F^T F)
    return nmf.num_iters * (update_f + update_g + products) + product
