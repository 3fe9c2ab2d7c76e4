"""What a layer sees: the spatial components of its factorization, over whole images.

The factors of a window are F (E x R, unit columns) and G (N x R, with the scale): column r of G is
a picture of where the pattern of channels in column r of F occurs. As scales are in G, the pictures
of windows fit together; the two grids of shifted windows are averaged after undoing the shift, and
overlapping patches are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.models.nnunet import ConvBlock
from factorizer.nn.blocks import FactorizerBlock, ResidualNMF
from factorizer.nn.unet import UNet


@dataclass(frozen=True)
class Layer:
    """A block of a U-shape: its number along the data path from 1, and the part that is looked
    at."""

    number: int
    part: nn.Module


def layers_of(network: nn.Module) -> list[Layer]:
    """The blocks of a Factorizer or a convolutional U-Net along the data path; 5 of 9 is the
    bridge."""
    if not isinstance(network, UNet):
        raise FactorizerError(
            f"{type(network).__name__} has no blocks that can be looked at; give a Factorizer or a "
            "U-Net"
        )
    stages = [*network.encoder, network.bridge, *network.decoder]
    blocks = [block for stage in stages for block in stage]
    parts = [block.mixer if isinstance(block, FactorizerBlock) else block for block in blocks]
    if not all(isinstance(part, ResidualNMF | ConvBlock) for part in parts):
        raise FactorizerError(
            "its blocks hold neither a factorization nor convolutions; give a Factorizer or a U-Net"
        )
    return [Layer(number, part) for number, part in enumerate(parts, start=1)]


def choose_layers(layers: Sequence[Layer], wanted: str) -> list[Layer]:
    """first, last, both, all, or numbers such as 1,5."""
    known = {
        "first": layers[:1],
        "last": layers[-1:],
        "both": [layers[0], layers[-1]],
        "all": layers,
    }
    if wanted in known:
        return list(known[wanted])
    try:
        numbered = {layer.number: layer for layer in layers}
        return [numbered[number] for number in dict.fromkeys(map(int, wanted.split(",")))]
    except (ValueError, KeyError):
        raise FactorizerError(
            f"--layer got {wanted!r}; give first, last, both, all, or numbers from 1 to "
            f"{len(layers)}"
        ) from None


def factorize(layer: ResidualNMF, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Its input (B, C, *spatial) -> F (B, heads, windows, E, R), G (B, heads, windows, N, R) and
    the pictures of G (B, heads R, *spatial)."""
    f, g, cut = layer.factors(x)
    return f, g, cut.dematricize(g.mT).movedim(-1, 1)


class Viewer:
    """A network of which each call gives the pictures of some layers, at the size of the patch.

    For convolutional blocks they are the channels of the result.
    """

    def __init__(self, network: nn.Module, layers: Sequence[Layer]) -> None:
        self.network, self.layers = network, list(layers)
        self.factors: dict[int, list[Tensor]] = {layer.number: [] for layer in layers}

    def __call__(self, patch: Tensor) -> Tensor:
        seen: dict[int, Tensor] = {}
        hooks = []
        for layer in self.layers:

            def look(
                module: nn.Module, inputs: Any, output: Tensor, number: int = layer.number
            ) -> None:
                seen[number] = self.picture(number, module, inputs[0], output)

            hooks.append(layer.part.register_forward_hook(look))
        try:
            self.network(patch)
        finally:
            for hook in hooks:
                hook.remove()
        maps = [
            F.interpolate(seen[layer.number], patch.shape[2:], mode="nearest-exact")
            for layer in self.layers
        ]
        return torch.cat(maps, 1)

    def picture(self, number: int, part: nn.Module, x: Tensor, output: Tensor) -> Tensor:
        if isinstance(part, ResidualNMF):
            f, g, pictures = factorize(part, x)
            self.factors[number].append((f * g.square().sum(-2, keepdim=True)).sum((0, 2)).cpu())
            return pictures
        return output

    def mean_factors(self, number: int) -> Tensor:
        """F of a layer over all windows, each with the weight |g|^2 of its term: (heads, E, R) with
        unit columns."""
        return F.normalize(torch.stack(self.factors[number]).sum(0), dim=-2)
