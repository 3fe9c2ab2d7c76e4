"""How much memory training will take, before it starts: a network of shapes without storage is run
forward once, and what it would keep for the backward pass is added up.

Measured on a CPU, twelve runs of six systems took 0.7 to 1.2 times as much.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from factorizer.config import Preset, build_options
from factorizer.errors import RunError
from factorizer.hardware import choose_device, usable_bytes
from factorizer.models.registry import build_model
from factorizer.nn.blocks import Adapter, ResidualMLP, ResidualNMF
from factorizer.profiling.count import build_without_storage
from factorizer.training.activations import units_of
from factorizer.training.trainer import Machine, share_batch

GIB = 2**30
TOO_LARGE = (
    "overflow",
    "too large",
    "allocate",
    "unpack",
)  # in what PyTorch says of sizes beyond its integers
BASE = 1.0 * GIB  # Python, PyTorch, Lightning, a patch or two, and the tiles at hand
COPIES = 4  # of every weight: itself, its gradient, and two means of AdamW (Muon has one)
MIXED = 0.6  # of the bytes of maps in mixed precision
GRADIENTS = 3  # of the largest map, that the backward pass holds at a time


@dataclass(frozen=True)
class Need:
    """Bytes that one process takes: for weights and what belongs to them, and for the maps of one
    patch."""

    weights: float
    maps: float
    patches: int

    @property
    def total(self) -> float:
        return BASE + self.weights + self.maps * self.patches


def check_memory(preset: Preset, machine: Machine) -> Need:
    """What training takes, about; an error where there is not as much, which names the field to
    change."""
    local, nodes = machine.processes()
    patches = share_batch(preset.training.batch_size, machine.accumulate, local * nodes)
    device = choose_device(machine.device)
    need = estimate(preset, machine, patches, device)
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else usable_bytes() / local
    if need.total > free:
        raise RunError(
            f"training takes about {need.total / GIB:.1f} "
            f"GiB{f' in each of {local} processes' * (local > 1)}, and {free / GIB:.1f} GiB are "
            f"free{' on the GPU' * on_gpu}; {advice(preset, machine, need, free)}"
        )
    return need


def is_out_of_memory(error: Exception) -> bool:
    """Whether the estimate was too low."""
    return isinstance(
        error, MemoryError | torch.OutOfMemoryError
    ) or "can't allocate memory" in str(error)


def advice(preset: Preset, machine: Machine, need: Need, free: float) -> str:
    """Which field to change: the one that most of the memory depends on; the batch where one patch
    would fit."""
    widths, patch = list(preset.model.widths), list(preset.data.patch_size)
    if need.weights > need.maps * need.patches:
        return f"lower model.widths, now {widths}, or choose a smaller system"
    if need.patches > 1 and replace(need, patches=1).total < free:
        return (
            f"lower training.batch_size, now {preset.training.batch_size}, or give a larger "
            "--accumulate"
        )
    more = "" if machine.checkpoint_activations else ", or give --checkpoint-activations"
    return f"lower data.patch_size, now {patch}, or model.widths, now {widths}{more}"


def estimate(preset: Preset, machine: Machine, patches: int, device: torch.device) -> Need:
    """What one process takes for `patches` patches at a time."""
    name = preset.model.name
    try:
        network = build_without_storage(lambda: build_model(name, **build_options(preset, name)))
        weights = 4.0 * sum(p.numel() for p in network.parameters())
        kept = KeptMaps(network, machine, device)
        kept.run(preset.in_channels, preset.data.patch_size)
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        if not any(sign in str(error) for sign in TOO_LARGE):
            raise
        raise RunError(
            f"a network of model.widths {list(preset.model.widths)} on data.patch_size "
            f"{list(preset.data.patch_size)} has more numbers than can be counted; lower them"
        ) from None
    maps = kept.total + GRADIENTS * kept.largest
    return Need(COPIES * weights, maps * (1.0 if machine.precision == "32" else MIXED), patches)


def works_in_tiles(module: nn.Module) -> bool:
    """Whether a module computes its maps again tile by tile; an NMF that joins windows cannot."""
    joins = isinstance(module, ResidualNMF) and module.wrapped_nmf.nmf.joins_windows
    return isinstance(module, Adapter | ResidualMLP | ResidualNMF) and not joins


class KeptMaps:
    """Counts the bytes that a network on the meta device keeps for the backward pass of one patch.

    Units that compute their maps again keep only what they are given: all with
    --checkpoint-activations, and those of a Factorizer on the CPU, which work tile by tile.
    """

    def __init__(self, network: nn.Module, machine: Machine, device: torch.device) -> None:
        self.network = network
        self.kept: dict[int, Any] = {}  # storages, by address
        self.weights = {p.untyped_storage()._cdata for p in network.parameters()}
        self.inside = 0  # units that compute again
        self.again, self.most_again = 0, 0  # bytes inside the unit at hand, and inside the largest
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
            self.kept[storage._cdata] = storage  # held, so that no other gets its address
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
