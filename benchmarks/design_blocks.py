"""Blocks that were tried for the Conv-Factorizer, and turned down for the one in the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.config import Preset
from factorizer.models.conv_factorizer import ResidualConv
from factorizer.models.nnunet import ResidualConvBlock, join
from factorizer.nn.blocks import Adapter, ResidualMLP, ResidualNMF, WrappedNMF
from factorizer.nn.matricize import GlobalMatricize, Matricize, ShiftedWindowMatricize
from factorizer.nn.nmf import NMF
from factorizer.nn.resample import CONV
from factorizer.nn.unet import UNet

GROUPS = 8
COARSE = 16  # voxels along the longest axis of a map that is factorized as a whole


class GroupNormNMF(nn.Module):
    """A residual NMF with GroupNorm instead of LayerNorm."""

    def __init__(self, channels: int, wrapped_nmf: WrappedNMF) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.wrapped_nmf = wrapped_nmf

    def forward(self, x: Tensor) -> Tensor:
        return self.wrapped_nmf(self.norm(x)) + x


class InnerConv(nn.Module):
    """A residual convolution whose activation stands inside the branch."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        self.conv = CONV[dims](channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.leaky_relu(self.norm(self.conv(x)))


class EarlyNormConv(InnerConv):
    """A residual convolution with norm and activation before it."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.leaky_relu(self.norm(x)))


class GroupedConv(nn.Module):
    """A residual convolution of channels in groups, and a linear layer that mixes them."""

    def __init__(self, channels: int, dims: int, groups: int) -> None:
        super().__init__()
        self.conv = CONV[dims](channels, channels, 3, padding=1, groups=groups, bias=False)
        self.mix = CONV[dims](channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.norm(self.mix(self.conv(x))) + x)


class DepthwiseMLP(nn.Module):
    """An MLP with GroupNorm, and a depthwise convolution of 3 between its layers."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        hidden = 2 * channels
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.widen = CONV[dims](channels, hidden, 1)
        self.depthwise = CONV[dims](hidden, hidden, 3, padding=1, groups=hidden)
        self.narrow = CONV[dims](hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.depthwise(self.widen(self.norm(x)))))


class ConvAdapter(nn.Module):
    """Several maps (B, C_i, *spatial) -> one map, by a convolution of 3."""

    def __init__(self, in_channels: int, out_channels: int, dims: int) -> None:
        super().__init__()
        self.conv = CONV[dims](in_channels, out_channels, 3, padding=1, bias=False)

    def forward(self, *maps: Tensor) -> Tensor:
        return self.conv(join(maps))


class Block(nn.Module):
    """An adapter where the width changes, then some layers."""

    def __init__(self, adapter: nn.Module, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.adapter = adapter
        self.layers = nn.Sequential(*layers)

    def forward(self, *maps: Tensor) -> Tensor:
        return self.layers(self.adapter(*maps))


CONVOLUTIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "after": lambda width, dims: ResidualConv(width, dims=dims, groups=GROUPS),
    "inner": InnerConv,
    "before": EarlyNormConv,
    "double": lambda width, dims: ResidualConvBlock(width, width, dims=dims, groups=GROUPS),
    "depthwise": DepthwiseMLP,
    "mlp": lambda width, dims: ResidualMLP(width, 2 * width),
}


@dataclass(frozen=True)
class Choices:
    """What a block is made of. The defaults are those of the Conv-Factorizer."""

    norm: str = "layer"  # before NMF: layer or group
    conv: str = "after"  # one of CONVOLUTIONS
    cut: str = "windows"  # windows, whole (maps), or mixed: whole where a map is coarse
    adapter: str = "linear"  # linear or conv
    nmf_place: int | None = 0  # before the convolution of this number; None: after all
    with_mlp: bool = False
    nmf_levels: tuple[int, ...] | None = None  # None means all
    convs: tuple[int, ...] = (1, 1, 1, 1, 1)  # in a block of each level
    conv_groups: tuple[int, ...] = (1, 1, 1, 1, 1)  # of the convolutions of each level


def build_from_choices(preset: Preset, choices: Choices) -> UNet:
    """The U-shape of a preset with other blocks."""
    model, numbers = preset.model, count(1)
    dims = len(preset.data.patch_size)

    def make_nmf(width: int, size: tuple[int, ...]) -> nn.Module:
        nmf = NMF(model.rank, model.num_iters, model.solver, seed=next(numbers))
        cut = make_cut(choices.cut, size, preset)
        wrapped = WrappedNMF(width, cut, nmf, spatial_size=size)
        if choices.norm == "group":
            return GroupNormNMF(width, wrapped)
        return ResidualNMF(width, wrapped)

    def make_block(in_width: int, width: int, size: tuple[int, ...]) -> Block:
        level = model.widths.index(width)
        layers: list[nn.Module] = []
        for _ in range(choices.convs[level]):
            layers.append(make_conv(choices, level, width, dims))
        if choices.nmf_levels is None or level in choices.nmf_levels:
            place = len(layers) if choices.nmf_place is None else choices.nmf_place
            layers.insert(place, make_nmf(width, size))
        if choices.with_mlp:
            layers.append(ResidualMLP(width, 2 * width))
        return Block(make_adapter(choices.adapter, in_width, width, dims), layers)

    return UNet(
        in_channels=preset.in_channels,
        out_channels=preset.out_channels,
        spatial_size=preset.data.patch_size,
        make_block=make_block,
        widths=model.widths,
        strides=model.strides,
        position_embedding=False,
    )


def make_conv(choices: Choices, level: int, width: int, dims: int) -> nn.Module:
    groups = choices.conv_groups[level]
    if groups > 1:
        return GroupedConv(width, dims, groups)
    return CONVOLUTIONS[choices.conv](width, dims)


def make_cut(kind: str, size: Sequence[int], preset: Preset) -> Matricize:
    whole = kind == "whole" or (kind == "mixed" and max(size) <= COARSE)
    if whole:
        return GlobalMatricize(preset.model.head_dim)
    return ShiftedWindowMatricize(preset.model.head_dim, preset.model.window)


def make_adapter(kind: str, in_width: int, width: int, dims: int) -> nn.Module:
    if in_width == width:
        return nn.Identity()
    if kind == "conv":
        return ConvAdapter(in_width, width, dims)
    return Adapter(in_width, width)
