"""Performer: the shared U-shape with linear-time FAVOR+ attention (Sec. 4.2, baselines).

K. Choromanski et al., "Rethinking attention with Performers", ICLR 2021. All voxels attend to all.
Softmax attention weighs value m for query n by exp(q_n . k_m / sqrt(d)). The expected product
phi(q) . phi(k) of positive random features equals that weight. The sum over m is therefore taken
first, once for all queries, and no N x N matrix is formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import ceil, log

import torch
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.nn.blocks import FactorizerBlock, ResidualMLP
from factorizer.nn.nmf import full_precision, widen
from factorizer.nn.unet import UNet

FEATURE_FLOOR = 1e-4  # added to every feature: the denominator of the attention never vanishes


def favor_attention(q: Tensor, k: Tensor, v: Tensor, projection: Tensor) -> Tensor:
    """Softmax attention approximated through random features: q, k, v (..., N, d) -> (..., N, d).

    The largest exponent of each query, and that of all keys, is subtracted before exponentiation.
    Both factors cancel between numerator and denominator.
    """
    phi_q = features(q, projection, dims=(-1,))  # (..., N, m)
    phi_k = features(k, projection, dims=(-1, -2))  # (..., N, m)
    context = phi_k.mT @ v  # (..., m, d)
    total = phi_k.sum(-2).unsqueeze(-1)  # (..., m, 1)
    return (phi_q @ context) / (phi_q @ total)


def features(x: Tensor, projection: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Positive features of the softmax kernel: x (..., N, d), projection (m, d) -> (..., N, m).

    The largest exponent over `dims` is subtracted.
    """
    x = x * x.shape[-1] ** -0.25  # for queries and keys together the 1 / sqrt(d) of attention
    u = x @ projection.mT
    largest = u.amax(dims, keepdim=True).detach()
    exponents = u - x.square().sum(-1, keepdim=True) / 2 - largest
    return (exponents.exp() + FEATURE_FLOOR) * len(projection) ** -0.5


def draw_projection(num_features: int, head_dim: int, generator: torch.Generator) -> Tensor:
    """Random directions (m, d), orthogonal in blocks of d, with the lengths of Gaussian vectors."""

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cpu")

    def orthogonal() -> Tensor:
        q, r = torch.linalg.qr(gaussian(head_dim, head_dim))
        return (q * r.diagonal().sign()).mT  # with the signs of R, Q has no preferred direction

    blocks = [orthogonal() for _ in range(ceil(num_features / head_dim))]
    lengths = gaussian(num_features, head_dim).norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:num_features] * lengths


class FavorAttention(nn.Module):
    """Multi-head FAVOR+ attention on tokens (B, N, C) -> (B, N, C).

    The projection is drawn once and saved with the weights.
    """

    projection: Tensor

    def __init__(
        self, channels: int, head_dim: int, num_features: int, *, dropout: float, seed: int
    ) -> None:
        super().__init__()
        if channels % head_dim:
            raise FactorizerError(
                f"{channels} channels cannot be cut into heads of head_dim {head_dim}; use a "
                "multiple"
            )
        self.head_dim = head_dim
        self.query = nn.Linear(channels, channels, bias=False)
        self.key = nn.Linear(channels, channels, bias=False)
        self.value = nn.Linear(channels, channels, bias=False)
        self.out_proj = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("projection", draw_projection(num_features, head_dim, generator))

    def forward(self, x: Tensor) -> Tensor:
        heads = [self.split_heads(linear(x)) for linear in (self.query, self.key, self.value)]
        with full_precision(x):  # the features sum over millions of voxels
            q, k, v = map(widen, heads)
            y = favor_attention(q, k, v, self.projection.to(q.dtype))
        return self.dropout(self.out_proj(y.to(heads[0].dtype).transpose(1, 2).flatten(2)))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, N, C) -> (B, heads, N, d)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class ResidualAttention(nn.Module):
    """Y = Attention(LayerNorm(X)) + X with the voxels of a map (B, C, *spatial) as tokens."""

    def __init__(self, channels: int, attention: FavorAttention) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.movedim(1, -1).flatten(1, -2)  # (B, N, C)
        tokens = self.attention(self.norm(tokens)) + tokens
        return tokens.unflatten(1, x.shape[2:]).movedim(-1, 1)


def build_performer(
    *,
    in_channels: int,
    out_channels: int,
    spatial_size: Sequence[int],
    widths: Sequence[int] = (32, 64, 128, 256, 512),
    depths: Sequence[int] | None = None,
    strides: int | Sequence[int | Sequence[int]] = 2,
    head_dim: int = 8,
    num_features: int | None = None,
    mlp_ratio: float = 2,
    dropout: float = 0.0,
    deep_supervision: bool = True,
    position_embedding: bool = True,
    seed: int = 0,
) -> UNet:
    """Build Performer; the defaults are the paper's for BraTS.

    `num_features` is the number m of random features, floor(d ln d) unless given. They follow from
    `seed`.
    """
    if num_features is None:
        num_features = max(1, int(head_dim * log(head_dim)))
    if num_features < 1:
        raise FactorizerError(f"num_features is {num_features}; it must be at least 1")
    layers = count(1)

    def make_block(in_width: int, width: int, size: tuple[int, ...]) -> FactorizerBlock:
        own_seed = 1000 * seed + next(layers)
        attention = FavorAttention(width, head_dim, num_features, dropout=dropout, seed=own_seed)
        mixer = ResidualAttention(width, attention)
        mlp = ResidualMLP(width, round(mlp_ratio * width), dropout=dropout) if mlp_ratio else None
        return FactorizerBlock(in_width, width, mixer=mixer, mlp=mlp, dropout=dropout)

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
