"""What a layer sees: the spatial components of its factorization, over whole images.

The factors of a window are F (E x R, unit columns) and G (N x R, with the scale). Column r of G is
a component: an image of where the pattern of channels in column r of F occurs. As the scale is in
G, the components of neighbouring windows fit together. The two grids of shifted windows are
averaged after the shift is undone, and overlapping patches are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.models.conv_factorizer import ConvFactorizerBlock
from factorizer.models.nnunet import ConvBlock
from factorizer.nn.blocks import ResidualNMF, nmf_blocks
from factorizer.nn.unet import UNet


@dataclass(frozen=True)
class Layer:
    """A block of a U-shape: its number along the data path, from 1, and the part to look at."""

    number: int
    part: nn.Module


def layers_of(network: nn.Module) -> list[Layer]:
    """The blocks of a Factorizer or a convolutional U-Net along the data path.

    Of nine blocks the fifth is the bridge.
    """
    if not isinstance(network, UNet):
        raise FactorizerError(
            f"{type(network).__name__} has no blocks that can be inspected; give a Factorizer or a "
            "U-Net"
        )
    blocks: list[nn.Module] = []
    for stage in (*network.encoder, network.bridge, *network.decoder):
        blocks += stage
    return [Layer(number, part_to_look_at(block)) for number, block in enumerate(blocks, start=1)]


def part_to_look_at(block: nn.Module) -> nn.Module:
    """The factorization of a block, or the whole block if it has convolutions alone."""
    factorizations = list(nmf_blocks(block).values())
    if factorizations:
        return factorizations[0]
    if isinstance(block, ConvBlock | ConvFactorizerBlock):
        return block
    raise FactorizerError(
        "its blocks hold neither a factorization nor convolutions; give a Factorizer or a U-Net"
    )


def choose_layers(layers: Sequence[Layer], wanted: str) -> list[Layer]:
    """The layers that `wanted` names: first, last, both, all, or numbers such as 1,5."""
    known = {
        "first": layers[:1],
        "last": layers[-1:],
        "both": [layers[0], layers[-1]],
        "all": layers,
    }
    if wanted in known:
        return list(known[wanted])
    numbered = {layer.number: layer for layer in layers}
    try:
        numbers = dict.fromkeys(map(int, wanted.split(",")))
        return [numbered[number] for number in numbers]
    except (ValueError, KeyError):
        raise FactorizerError(
            f"layer is {wanted!r}; give first, last, both, all, or numbers from 1 to {len(layers)}"
        ) from None


def factorize(layer: ResidualNMF, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The factors and the components of a layer for its input x (B, C, *spatial).

    F (B, heads, windows, E, R), G (B, heads, windows, N, R), components (B, heads R, *spatial).
    """
    f, g, cut = layer.factors(x)
    return f, g, cut.dematricize(g.mT).movedim(-1, 1)


class Viewer:
    """A network whose calls return the components of some layers, at the size of the patch.

    The components of a convolutional block are the channels of its result. `factors` collects F of
    every factorization, by the number of its layer.
    """

    def __init__(self, network: nn.Module, layers: Sequence[Layer]) -> None:
        self.network = network
        self.layers = list(layers)
        self.factors: dict[int, list[Tensor]] = {layer.number: [] for layer in layers}

    def __call__(self, patch: Tensor) -> Tensor:
        """(B, C, *spatial) -> components of all layers (B, components, *spatial)."""
        seen: dict[int, Tensor] = {}
        hooks = []
        for layer in self.layers:
            look = partial(self.look, layer.number, seen)
            hooks.append(layer.part.register_forward_hook(look))
        try:
            self.network(patch)
        finally:
            for hook in hooks:
                hook.remove()
        size = patch.shape[2:]
        maps = [
            F.interpolate(seen[layer.number], size, mode="nearest-exact") for layer in self.layers
        ]
        return torch.cat(maps, 1)

    def look(
        self, number: int, seen: dict[int, Tensor], part: nn.Module, inputs: Any, output: Tensor
    ) -> None:
        """A forward hook of layer `number`: keep its components in `seen`."""
        if not isinstance(part, ResidualNMF):
            seen[number] = output
            return
        f, g, seen[number] = factorize(part, inputs[0])
        weighted = f * g.square().sum(-2, keepdim=True)
        self.factors[number].append(weighted.sum((0, 2)).cpu())

    def mean_factors(self, number: int) -> Tensor:
        """The mean F of a layer over all windows so far: (heads, E, R) with unit columns.

        Each column counts with the weight |g|^2 of its term.
        """
        return F.normalize(torch.stack(self.factors[number]).sum(0), dim=-2)
