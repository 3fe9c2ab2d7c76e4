"""A plain transcription of the paper, kept as an oracle: slow, short and easy to check.

Channels first, einops, `torch.roll`, and a loop of T updates per matrix. The tests compare the
package with it; `make bench` measures the package against it. It shares no code with the
package.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from einops import rearrange
from torch import Tensor, nn


def hals(x: Tensor, f: Tensor, g: Tensor, num_iters: int) -> tuple[Tensor, Tensor]:
    """Algorithm 2. x (..., M, N), f (..., M, R), g (..., N, R)."""
    for _ in range(num_iters):
        f = hals_sweep(x, f, g)
        g = hals_sweep(x.mT, g, f)
    return f, g


def hals_sweep(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
    """Lines 3-5 of Algorithm 2: update the columns of f one after the other (Eq. 13)."""
    a, b = x @ g, g.mT @ g
    columns = list(f.unbind(-1))
    for r in range(len(columns)):
        rest = sum(
            (b[..., j, r, None] * columns[j] for j in range(len(columns)) if j != r),
            torch.zeros(()),
        )
        columns[r] = torch.relu((a[..., r] - rest) / b[..., r, r, None])
    return torch.stack(columns, -1)


def mu(x: Tensor, f: Tensor, g: Tensor, num_iters: int) -> tuple[Tensor, Tensor]:
    """Algorithm 1. x (..., M, N), f (..., M, R), g (..., N, R)."""
    for _ in range(num_iters):
        f = f * (x @ g) / (f @ (g.mT @ g))
        g = g * (x.mT @ f) / (g @ (f.mT @ f))
    return f, g


def rank_one(x: Tensor, g: Tensor, num_iters: int) -> tuple[Tensor, Tensor]:
    """Eq. 14, with the transpose that is missing in print. x (..., M, N), g (..., N, 1)."""
    for _ in range(num_iters):
        f = x @ g / (g.mT @ g)
        g = x.mT @ f / (f.mT @ f)
    return f, g


def local_matricize(x: Tensor, head_dim: int, window: int) -> Tensor:
    """Eq. 7: (B, C, H, W, D) -> (B heads windows, E, P^3)."""
    pattern = "b (c e) (h p) (w q) (d r) -> (b c h w d) e (p q r)"
    return rearrange(x, pattern, e=head_dim, p=window, q=window, r=window)


def local_dematricize(x: Tensor, like: Tensor, window: int) -> Tensor:
    """The inverse of Eq. 7, back to the shape of `like`."""
    _, channels, *size = like.shape
    pattern = "(b c h w d) e (p q r) -> b (c e) (h p) (w q) (d r)"
    h, w, d = (s // window for s in size)
    heads = channels // x.shape[1]
    return rearrange(x, pattern, c=heads, h=h, w=w, d=d, p=window, q=window, r=window)


def sw_matricize(x: Tensor, head_dim: int, window: int) -> Tensor:
    """Eq. 8: regular windows, then the windows of the map rolled by half a window."""
    rolled = torch.roll(x, (window // 2,) * 3, (2, 3, 4))
    return torch.cat(
        (local_matricize(x, head_dim, window), local_matricize(rolled, head_dim, window))
    )


def sw_dematricize(x: Tensor, like: Tensor, window: int) -> Tensor:
    """The average of both reconstructions; the shift is negated, unlike in the printed Alg. 3."""
    regular, shifted = (local_dematricize(part, like, window) for part in x.chunk(2))
    return 0.5 * (regular + torch.roll(shifted, (-(window // 2),) * 3, (2, 3, 4)))


class LayerNorm(nn.LayerNorm):
    """LayerNorm over the channels of a channels-first map."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class WrappedNMF(nn.Module):
    """Eq. 6 with SW Matricize and R = 1."""

    def __init__(self, channels: int, head_dim: int, window: int, num_iters: int = 5) -> None:
        super().__init__()
        self.head_dim, self.window, self.num_iters = head_dim, window, num_iters
        self.in_proj = nn.Conv3d(channels, channels, 1, bias=False)
        self.out_proj = nn.Conv3d(channels, channels, 1)
        self.register_buffer("g0", torch.rand(window**3, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.in_proj(x)
        x2 = torch.relu(sw_matricize(x1, self.head_dim, self.window))
        f, g = rank_one(x2, self.g0, self.num_iters)
        return self.out_proj(sw_dematricize(f @ g.mT, x1, self.window))


class Block(nn.Module):
    """Eq. 4-5, with the pointwise adapter where the width changes."""

    def __init__(
        self, c_in: int, channels: int, head_dim: int, window: int, mlp_ratio: int
    ) -> None:
        super().__init__()
        self.adapter = (
            nn.Conv3d(c_in, channels, 1, bias=False) if c_in != channels else nn.Identity()
        )
        self.norm1, self.norm2 = LayerNorm(channels), LayerNorm(channels)
        self.nmf = WrappedNMF(channels, head_dim, window)
        hidden = mlp_ratio * channels
        self.mlp = nn.Sequential(
            nn.Conv3d(channels, hidden, 1), nn.GELU(), nn.Conv3d(hidden, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.adapter(x)
        y = self.nmf(self.norm1(x)) + x
        return self.mlp(self.norm2(y)) + y


class SwinFactorizer(nn.Module):
    """Fig. 1: the U-shape with widths 32-64-128-256-512 and three heads."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int,
        head_dim: int,
        window: int,
        mlp_ratio: int,
    ) -> None:
        super().__init__()
        widths = (32, 64, 128, 256, 512)

        def block(level: int, c_in: int) -> Block:
            p = min(window, size >> level)
            return Block(c_in, widths[level], head_dim, p, mlp_ratio)

        pairs = list(pairwise(widths))
        self.stem = nn.Conv3d(in_channels, widths[0], 3, padding=1, bias=False)
        self.down = nn.ModuleList(nn.Conv3d(a, b, 2, 2, bias=False) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs)
        self.encoder = nn.ModuleList(block(i, w) for i, w in enumerate(widths))
        self.decoder = nn.ModuleList(block(i, 2 * w) for i, w in enumerate(widths[:-1]))
        self.heads = nn.ModuleList(nn.Conv3d(w, out_channels, 1) for w in widths[:3])
        self.position = nn.Parameter(torch.randn(1, widths[-1], *3 * (size // 16,)))

    def forward(self, x: Tensor) -> list[Tensor]:
        skips, x = [], self.stem(x)
        for block, down in zip(self.encoder, self.down, strict=False):
            x = block(x)
            skips.append(x)
            x = down(x)
        x = self.encoder[-1](x + self.position)
        outputs = []
        for level in reversed(range(4)):
            x = self.decoder[level](torch.cat((skips[level], self.up[level](x)), 1))
            if level < 3:
                outputs.insert(0, self.heads[level](x))
        return outputs
