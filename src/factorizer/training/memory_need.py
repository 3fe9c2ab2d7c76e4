"""The memory that training needs, estimated before it starts.

A network without storage computes a patch without numbers, only shapes. The maps that it would keep
for the backward pass are added up. Twelve trainings of six systems on a CPU needed 0.7 to 1.2 times
the estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from factorizer.config import Preset
from factorizer.config.networks import build_system, building_errors
from factorizer.errors import RunError
from factorizer.hardware import GIB, choose_device, device_bytes
from factorizer.nn.blocks import Adapter, ResidualMLP, ResidualNMF
from factorizer.profiling.count import build_without_storage
from factorizer.training.activations import units_of
from factorizer.training.machine import Machine, share_batch

BASE = 1.0 * GIB  # Python, PyTorch, Lightning, a patch or two, and the tiles that are computed
COPIES = 4  # of every weight: itself, its gradient, and two means of AdamW (Muon has one)
AVERAGED_COPIES = 1  # more, with a running average of weights
MIXED = 0.6  # the size of maps in mixed precision, relative to full precision
GRADIENTS = 3  # copies of the largest map that the backward pass holds at a time


@dataclass(frozen=True)
class Need:
    """The bytes that one process needs."""

    weights: float  # with their gradients and the optimizer's means
    maps: float  # of one patch
    patches: int

    @property
    def total(self) -> float:
        return BASE + self.weights + self.maps * self.patches


def check_memory(preset: Preset, machine: Machine) -> Need:
    """The memory that training needs. If it is not free, the error names the field to change."""
    local, nodes = machine.processes()
    patches = share_batch(preset.training.batch_size, machine.accumulate, local * nodes)
    device = choose_device(machine.device)
    need = estimate(preset, machine, patches, device)
    on_gpu = device.type == "cuda"
    free = device_bytes(device) / (1 if on_gpu else local)
    if need.total > free:
        each = f" in each of {local} processes" if local > 1 else ""
        place = " on the GPU" if on_gpu else ""
        raise RunError(
            f"training needs about {need.total / GIB:.1f} GiB{each}, and {free / GIB:.1f} GiB are "
            f"free{place}; {advice(preset, machine, need, free)}"
        )
    return need


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that the memory ran out."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "can't allocate memory" in str(error)


def advice(preset: Preset, machine: Machine, need: Need, free: float) -> str:
    """Which field to change: the one that needs most of the memory, or the batch if one patch would
    fit."""
    widths, patch = list(preset.model.widths), list(preset.data.patch_size)
    if need.weights > need.maps * need.patches:
        return f"lower model.widths, now {widths}, or choose a smaller system"
    if need.patches > 1 and replace(need, patches=1).total < free:
        return (
            f"lower training.batch_size, now {preset.training.batch_size}, or raise accumulate, "
            f"now {machine.accumulate}"
        )
    more = "" if machine.checkpoint_activations else ", or turn on checkpoint_activations"
    return f"lower data.patch_size, now {patch}, or model.widths, now {widths}{more}"


def estimate(preset: Preset, machine: Machine, patches: int, device: torch.device) -> Need:
    """The memory that one process needs for so many patches at a time."""
    name = preset.model.name
    with building_errors(preset, name):
        network = build_without_storage(lambda: build_system(preset, name))
        weights = 4.0 * sum(weight.numel() for weight in network.parameters())
        kept = KeptMaps(network, machine, device)
        kept.run(preset.in_channels, preset.data.patch_size)
    size = 1.0 if machine.precision == "32" else MIXED
    maps = size * (kept.total + GRADIENTS * kept.largest)
    copies = COPIES + (AVERAGED_COPIES if preset.training.average_weights else 0)
    return Need(copies * weights, maps, patches)


def works_in_tiles(module: nn.Module) -> bool:
    """Whether a module computes its maps again, tile by tile. An NMF that joins windows cannot."""
    joins = isinstance(module, ResidualNMF) and module.wrapped_nmf.nmf.joins_windows
    return isinstance(module, Adapter | ResidualMLP | ResidualNMF) and not joins


class KeptMaps:
    """Counts the bytes that a network without storage keeps for the backward pass of one patch.

    Some units compute their maps again and keep only their inputs: every unit if the machine
    checkpoints activations, and the units of a Factorizer on the CPU, which work tile by tile.
    """

    def __init__(self, network: nn.Module, machine: Machine, device: torch.device) -> None:
        self.network = network
        self.kept: dict[int, Any] = {}  # storages by address
        self.weights = {weight.untyped_storage()._cdata for weight in network.parameters()}
        self.inside = 0  # how many units that compute again surround the current place
        self.again = 0  # bytes inside the current unit
        self.most_again = 0  # bytes inside the largest unit
        tiles = device.type == "cpu" and machine.precision == "32"
        self.tiled = [module for module in network.modules() if tiles and works_in_tiles(module)]
        self.units = list(units_of(network)) if machine.checkpoint_activations else []

    @property
    def total(self) -> float:
        return float(sum(storage.nbytes() for storage in self.kept.values()) + self.most_again)

    @property
    def largest(self) -> int:
        return max((storage.nbytes() for storage in self.kept.values()), default=0)

    def run(self, channels: int, size: tuple[int, ...]) -> None:
        for module in {*self.tiled, *self.units}:
            module.register_forward_pre_hook(self.enter)
            module.register_forward_hook(self.leave(module in self.tiled))
        with (
            warnings.catch_warnings(),
            torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor),
        ):
            warnings.simplefilter("ignore")
            self.network.train()(torch.empty(1, channels, *size, device="meta"))

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if self.inside:
            self.again += storage.nbytes()
        elif storage._cdata not in self.weights:
            self.kept[storage._cdata] = storage  # kept alive, so that no other gets its address
        return tensor

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not self.inside:
            for value in inputs:
                if isinstance(value, Tensor):
                    self.keep(value)
        self.inside += 1

    def leave(self, tiled: bool) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.inside -= 1
            if not self.inside:
                self.most_again = max(self.most_again, 0 if tiled else self.again)
                self.again = 0

        return hook
