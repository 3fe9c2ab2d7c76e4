"""Training memory for time: activations that are computed again in the backward pass instead of
kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from factorizer.nn.blocks import FactorizerBlock


def checkpoint_activations(network: nn.Module) -> None:
    """Make every unit of a network keep only its inputs for the backward pass, in place.

    Names of weights, results and gradients stay as they are. Factorizer blocks compute most of
    their activations again anyway, so they gain little.
    """
    for unit in units_of(network):
        unit.forward = recompute(unit.forward)


def units_of(module: nn.Module) -> Iterator[nn.Module]:
    """Modules that hold layers side by side, and no list of further modules: a block of
    convolutions with their norms, a transformer block; and Factorizer blocks whole, as their parts
    recompute by themselves."""
    for child in module.children():
        parts = list(child.children())
        layers = any(not list(part.children()) for part in parts) and not isinstance(
            child, nn.ModuleList
        )
        if isinstance(child, FactorizerBlock) or (
            layers and not any(isinstance(p, nn.ModuleList) for p in parts)
        ):
            yield child
        else:
            yield from units_of(child)


def recompute(forward: Any) -> Any:
    def wrapped(*inputs: Any, **options: Any) -> Any:
        return checkpoint(forward, *inputs, use_reentrant=False, **options)

    return wrapped
