"""Save memory in training: activations are not kept, but computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from factorizer.nn.blocks import FactorizerBlock


def checkpoint_activations(network: nn.Module) -> None:
    """Make every unit of a network keep only its inputs for the backward pass, in place.

    The names of weights, the results and the gradients stay the same. Factorizer blocks gain
    little: they compute most of their activations again anyway.
    """
    for unit in units_of(network):
        unit.forward = recompute(unit.forward)


def units_of(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that compute their activations again, such as a block of convolutions with
    norms."""
    for child in module.children():
        if is_unit(child):
            yield child
        else:
            yield from units_of(child)


def is_unit(module: nn.Module) -> bool:
    """Whether a module holds layers, and no list of further modules.

    A Factorizer block is one unit, because its parts recompute by themselves.
    """
    if isinstance(module, FactorizerBlock):
        return True
    if isinstance(module, nn.ModuleList):
        return False
    parts = list(module.children())
    has_layer = any(is_layer(part) for part in parts)
    has_list = any(isinstance(part, nn.ModuleList) for part in parts)
    return has_layer and not has_list


def is_layer(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def recompute(forward: Any) -> Any:
    def wrapped(*inputs: Any, **options: Any) -> Any:
        return checkpoint(forward, *inputs, use_reentrant=False, **options)

    return wrapped
