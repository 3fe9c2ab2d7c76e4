"""Settings of the NMF layers of a trained network: what ablations try and what tuning chooses.

A setting lists, for each NMF layer along the data path, what differs from the network as it was
trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from factorizer.errors import FactorizerError
from factorizer.nn.blocks import ResidualNMF
from factorizer.nn.nmf import NMF

LayerSetting = Mapping[str, Any]  # num_iters, rank, solver, bypass
ATTRIBUTES = ("num_iters", "rank", "solver", "bypass")


@dataclass(frozen=True)
class Setting:
    """A named point of an ablation: `value` is its place on the axis of the study."""

    study: str
    value: int
    layers: tuple[LayerSetting, ...]
    note: str = ""


@dataclass(frozen=True)
class Point:
    """A setting and what was measured with it.

    Dice and HD95 (mm, with the penalty) are means over cases and regions. Time and GFLOPs are those
    of one patch; `time_ratio` is the time over that of the trained setting in the same rounds.
    """

    study: str
    value: int
    dice: float
    hd95_mm: float
    milliseconds: float
    time_ratio: float
    gflops: float
    cases: int
    note: str = ""


def nmf_layers(network: nn.Module) -> list[NMF]:
    """The factorizations along the data path."""
    layers = [
        module.wrapped_nmf.nmf for module in network.modules() if isinstance(module, ResidualNMF)
    ]
    if not layers:
        raise FactorizerError("the network has no NMF layer; give a run of a Factorizer")
    return layers


@contextmanager
def applied(network: nn.Module, layers: Sequence[LayerSetting]) -> Iterator[None]:
    """The network with a setting, as it was before afterwards."""
    modules = (
        nmf_layers(network) if layers else []
    )  # another network than a Factorizer has nothing to set
    before = [{name: getattr(module, name) for name in ATTRIBUTES} for module in modules]
    try:
        for module, setting in zip(modules, layers, strict=True):
            for name, value in setting.items():
                setattr(module, name, value)
        yield
    finally:
        for module, values in zip(modules, before, strict=True):
            for name, value in values.items():
                setattr(module, name, value)


def matrix_sizes(network: nn.Module, in_channels: int, size: Sequence[int]) -> list[int]:
    """For each NMF layer the largest rank that its matrices can have: the smaller of their
    sides."""
    limits: list[int] = []

    def look(module: ResidualNMF, inputs: Any) -> None:
        shape = inputs[0].shape[2:]
        matricize = module.wrapped_nmf.matricize.fitted(shape)
        limits.append(
            min(matricize.head_dim, *(prod(grid.window) for grid in matricize.grids(shape)))
        )

    hooks = [
        m.register_forward_pre_hook(look) for m in network.modules() if isinstance(m, ResidualNMF)
    ]
    try:
        with torch.inference_mode():
            network(torch.zeros(1, in_channels, *size, device=next(network.parameters()).device))
    finally:
        for hook in hooks:
            hook.remove()
    return limits


def paper_settings(
    count: int, head_dim: int, limits: Sequence[int], *, iterations: int = 20
) -> list[Setting]:
    """The studies of the paper's Fig. 8 for a network of `count` NMF layers."""
    same: LayerSetting = {}
    off: LayerSetting = {"bypass": True}
    settings = [
        Setting(
            "first layers kept",
            kept,
            tuple(same if index < kept else off for index in range(count)),
        )
        for kept in range(count + 1)
    ]
    settings += [
        Setting(
            "layer removed",
            number + 1,
            tuple(off if index == number else same for index in range(count)),
        )
        for number in range(count)
    ]
    settings += [
        Setting("iterations", number, ({"num_iters": number},) * count)
        for number in range(1, iterations + 1)
    ]
    for solver in ("hals", "mu"):
        for rank in range(1, head_dim + 1):
            capped = [number + 1 for number, limit in enumerate(limits) if limit < rank]
            note = f"capped in layers {', '.join(map(str, capped))}" if capped else ""
            layers = tuple({"rank": min(rank, limit), "solver": solver} for limit in limits)
            settings.append(Setting(f"rank ({solver.upper()})", rank, layers, note))
    return settings
