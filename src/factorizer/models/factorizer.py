"""Global, Local and Swin Factorizer: the U-shape of Factorizer blocks (Fig. 1 and 2).

P. Ashtari et al., "Factorizer: A Scalable Interpretable Approach to Context Modeling for Medical
Image Segmentation", Medical Image Analysis 84 (2023) 102706.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal

from factorizer.errors import FactorizerError
from factorizer.nn.blocks import FactorizerBlock, ResidualMLP, ResidualNMF, WrappedNMF
from factorizer.nn.matricize import (
    GlobalMatricize,
    LocalMatricize,
    Matricize,
    ShiftedWindowMatricize,
)
from factorizer.nn.nmf import NMF
from factorizer.nn.unet import UNet


def build_factorizer(
    *,
    matricize: Literal["global", "local", "shifted"],
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    widths: Sequence[int] = (32, 64, 128, 256, 512),
    depths: Sequence[int] | None = None,
    strides: int | Sequence[int | Sequence[int]] = 2,
    head_dim: int = 8,
    window: int | Sequence[int] | None = None,
    rank: int = 1,
    num_iters: int = 5,
    solver: str = "hals",
    tolerance: float = 0.1,
    mixer: Literal["nmf", "none"] = "nmf",
    mlp_ratio: float = 2,
    dropout: float = 0.0,
    deep_supervision: bool = True,
    position_embedding: bool = True,
    seed: int = 0,
) -> UNet:
    """Build a Factorizer; the defaults are the paper's for BraTS.

    `window` is 8 unless given; Global Factorizer has none. The initial factors follow from `seed`
    and from the number of the NMF layer along the data path.
    """
    make_nmf = nmf_maker(
        mixer,
        make_matricize(matricize, head_dim, window),
        rank=rank,
        num_iters=num_iters,
        solver=solver,
        tolerance=tolerance,
        dropout=dropout,
        seed=seed,
    )

    def make_block(in_width: int, width: int, size: tuple[int, ...]) -> FactorizerBlock:
        mix, mlp = make_nmf(width, size), None
        if mlp_ratio:
            mlp = ResidualMLP(width, round(mlp_ratio * width), dropout=dropout)
        return FactorizerBlock(in_width, width, mixer=mix, mlp=mlp)

    return UNet(
        in_channels=in_channels,
        out_channels=out_channels,
        spatial_size=spatial_size,
        make_block=make_block,
        widths=widths,
        depths=depths,
        strides=strides,
        deep_supervision=deep_supervision,
        position_embedding=position_embedding,
        dropout=dropout,
    )


def nmf_maker(
    mixer: Literal["nmf", "none"],
    cut: Matricize,
    *,
    rank: int,
    num_iters: int,
    solver: str,
    tolerance: float,
    dropout: float,
    seed: int,
) -> Callable[[int, tuple[int, ...]], ResidualNMF | None]:
    """A function that makes the residual NMFs of a network, in the order of the data path.

    It takes the width and the size of a map. It makes none if `mixer` is "none". The initial
    factors of a layer follow from `seed` and from its number.
    """
    if mixer not in ("nmf", "none"):
        raise FactorizerError(f"mixer is {mixer!r}; choose 'nmf' or 'none'")
    numbers = count(1)

    def make(width: int, size: tuple[int, ...]) -> ResidualNMF | None:
        if mixer == "none":
            return None
        own_seed = 1000 * seed + next(numbers)
        nmf = NMF(rank, num_iters, solver, tolerance=tolerance, seed=own_seed)
        return ResidualNMF(width, WrappedNMF(width, cut, nmf, spatial_size=size, dropout=dropout))

    return make


def make_matricize(kind: str, head_dim: int, window: int | Sequence[int] | None) -> Matricize:
    """The matricization named `kind`, with the paper's window unless one is given."""
    if kind == "global":
        return GlobalMatricize(head_dim)
    windowed = {"local": LocalMatricize, "shifted": ShiftedWindowMatricize}
    if kind not in windowed:
        raise FactorizerError(f"matricize is {kind!r}; choose one of global, local, shifted")
    return windowed[kind](head_dim, 8 if window is None else window)
