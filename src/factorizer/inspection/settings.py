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
from factorizer.nn.blocks import ResidualNMF, nmf_blocks, nmf_layers
from factorizer.nn.nmf import NMF

LayerSetting = Mapping[str, Any]  # num_iters, rank, solver, bypass
ATTRIBUTES = ("num_iters", "rank", "solver", "bypass")
SAME: LayerSetting = {}
OFF: LayerSetting = {"bypass": True}


@dataclass(frozen=True)
class Setting:
    """A named point of an ablation. `value` is its place on the axis of the study."""

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


def settable_layers(network: nn.Module) -> list[NMF]:
    """The NMF layers of a network along the data path; an error if it has none."""
    layers = nmf_layers(network)
    if not layers:
        raise FactorizerError("the network has no NMF layer; give a run of a Factorizer")
    return layers


@contextmanager
def applied(network: nn.Module, layers: Sequence[LayerSetting]) -> Iterator[None]:
    """The network with a setting inside the `with` block, and as before after it.

    Without layers nothing is set, so that any network can be used.
    """
    modules = settable_layers(network) if layers else []
    before = [setting_of(module) for module in modules]
    try:
        set_layers(modules, layers)
        yield
    finally:
        set_layers(modules, before)


def setting_of(module: NMF) -> LayerSetting:
    """The present setting of a layer."""
    return {name: getattr(module, name) for name in ATTRIBUTES}


def set_layers(modules: Sequence[NMF], layers: Sequence[LayerSetting]) -> None:
    """Give every layer the attributes of its setting."""
    for module, setting in zip(modules, layers, strict=True):
        for name, value in setting.items():
            setattr(module, name, value)


def matrix_sizes(network: nn.Module, in_channels: int, size: Sequence[int]) -> list[int]:
    """For each NMF layer the largest rank of its matrices, which is their smaller side.

    `size` is that of the image. The network is run once on zeros.
    """
    limits: list[int] = []

    def look(block: ResidualNMF, inputs: Any) -> None:
        map_size = inputs[0].shape[2:]
        matricize = block.wrapped_nmf.matricize.fitted(map_size)
        voxels = [prod(grid.window) for grid in matricize.grids(map_size)]
        limits.append(min(matricize.head_dim, *voxels))

    hooks = [block.register_forward_pre_hook(look) for block in nmf_blocks(network).values()]
    device = next(network.parameters()).device
    try:
        with torch.inference_mode():
            network(torch.zeros(1, in_channels, *size, device=device))
    finally:
        for hook in hooks:
            hook.remove()
    return limits


def paper_settings(
    count: int, head_dim: int, limits: Sequence[int], *, iterations: int = 20
) -> list[Setting]:
    """The studies of the paper's Fig. 8 for a network of `count` NMF layers.

    `limits` is the largest rank of each layer, from `matrix_sizes`.
    """
    settings = []
    for kept in range(count + 1):
        layers = [SAME] * kept + [OFF] * (count - kept)
        settings.append(Setting("first layers kept", kept, tuple(layers)))
    for index in range(count):
        layers = [SAME] * count
        layers[index] = OFF
        settings.append(Setting("layer removed", index + 1, tuple(layers)))
    for number in range(1, iterations + 1):
        settings.append(Setting("iterations", number, ({"num_iters": number},) * count))
    for solver in ("hals", "mu"):
        settings += [rank_setting(solver, rank, limits) for rank in range(1, head_dim + 1)]
    return settings


def rank_setting(solver: str, rank: int, limits: Sequence[int]) -> Setting:
    """All layers with this solver and rank. A layer with smaller matrices gets its largest rank."""
    capped = [str(number) for number, limit in enumerate(limits, start=1) if limit < rank]
    note = f"capped in layers {', '.join(capped)}" if capped else ""
    layers = tuple({"rank": min(rank, limit), "solver": solver} for limit in limits)
    return Setting(f"rank ({solver.upper()})", rank, layers, note)
