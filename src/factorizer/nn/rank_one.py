"""Rank-one NMF of all heads of a window and its out-projection, in a few matrix products.

For a window X (N voxels x C channels, channels last), heads X_h (N x E), and U (C x heads), which
holds the factor f of head h in the rows of head h and zeros elsewhere:

    A = X_h^T X_h,  b = X_h^T g_0,  f = leading_direction(A, b)     (Eq. 14)
    G = X U,  Y = G M + bias,  M = U^T W^T

To project the reconstruction G U^T by W is to project U. The N x C reconstruction is therefore
never made, and W meets one vector per head instead of N. The backward pass is written out because
automatic differentiation would lay out its products badly and take several times as long.

The product of one head is too small for a processor. The E x E matrices of some neighbouring heads
are therefore the diagonal blocks of one K x K matrix, and the vectors of all heads are rows of C
numbers.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch
from torch import Tensor

from factorizer.nn.nmf import RESCALE_EVERY, TINY, full_precision, norm


def rank_one_mix(
    x: Tensor, g0: Tensor, weight: Tensor, bias: Tensor, *, head_dim: int, num_iters: int
) -> Tensor:
    """The reconstruction of x by heads, projected: x (windows, N, C) >= 0 -> (windows, N, C).

    g0 (N, 1) is the initial factor, weight (C, C) and bias (C) those of the out-projection.
    """
    return _RankOneMix.apply(x, g0, weight, bias, head_dim, num_iters)


class _RankOneMix(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, g0: Tensor, weight: Tensor, bias: Tensor, head_dim: int, num_iters: int
    ) -> Tensor:
        heads = Heads(x, head_dim)
        gram, scale = heads.grams(x)  # A (windows, C / K, K, K)
        v, first = normalize((g0.mT @ x).view(len(x), -1, head_dim))  # b (windows, heads, E)
        steps, scales = [v], {0: first}
        for t in range(1, num_iters):  # as leading_direction, keeping the steps
            v = heads.multiply(gram, v)
            if t % RESCALE_EVERY == 0 and t < num_iters - 1:
                v, scales[t] = normalize(v)
            steps.append(v)
        f, length = normalize(v)
        u = f.view(len(x), 1, -1) * heads.rows  # U^T (windows, heads, C)
        g = u @ x.mT  # G^T (windows, heads, N)
        m = u @ weight.mT  # (windows, heads, C)
        ctx.save_for_backward(x, g0, weight, gram, scale, f, length, u, g, m)
        ctx.heads, ctx.steps, ctx.scales = heads, steps, scales
        return torch.baddbmm(bias, g.mT, m)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        with full_precision(dy):
            return _RankOneMix.gradients(ctx, dy)

    @staticmethod
    def gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, g0, weight, gram, scale, f, length, u, g, m = ctx.saved_tensors
        heads: Heads = ctx.heads
        # Y = G M + bias, M = U^T W^T, G = X U
        dg, dm = m @ dy.mT, g @ dy  # (windows, heads, N), (windows, heads, C)
        dweight = dm.flatten(0, 1).mT @ u.flatten(0, 1)
        du = torch.baddbmm(dm @ weight, dg, x)
        df = (du * heads.rows).sum(1).view_as(f)
        # f = v / |v|, v = A v', and so on back to b
        dv = (df - f * (f * df).sum(-1, keepdim=True)) / length
        dsteps = []
        for t in reversed(range(1, len(ctx.steps))):
            dv = dv / ctx.scales[t] if t in ctx.scales else dv
            dsteps.append(dv)
            dv = heads.multiply(gram, dv)
        db = (dv / ctx.scales[0]).view(len(x), 1, -1)
        # G = X U and b = X^T g_0 in one product: dX = [dG, g_0] [U, db]^T
        left = torch.cat((dg, g0.mT.expand(len(x), -1, -1)), 1)
        dx = left.mT @ torch.cat((u, db), 1)
        if dsteps:  # A = X^T X: dX = X (dA + dA^T), dA the sum of dv v'^T
            before = ctx.steps[-2::-1]
            left, right = torch.stack(dsteps + before, -1), torch.stack(before + dsteps, -1)
            heads.add_product(dx, x, left, right, scale)
        return dx, None, dweight, dy.sum((0, 1)), None, None


def normalize(v: Tensor) -> tuple[Tensor, Tensor]:
    """v / |v| and |v| of vectors (..., E)."""
    length = norm(v)
    return v / length, length


class Heads:
    """How C channels form heads of E channels, and the heads groups of K channels."""

    def __init__(self, x: Tensor, head_dim: int) -> None:
        channels = x.shape[-1]
        self.head_dim = head_dim
        self.group = head_dim * gcd(channels // head_dim, max(1, 16 // head_dim))  # K
        head = torch.arange(channels, device=x.device) // head_dim
        own = head[::head_dim, None] == head  # (heads, C), true at a head's own channels
        blocks = head[: self.group, None] == head[: self.group]  # (K, K), block diagonal
        self.rows = own.to(x.dtype)
        self.blocks = blocks.to(x.dtype)

    def grams(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """X_h^T X_h of every head, scaled to unit trace (windows, C / K, K, K), and the scale."""
        grams = torch.stack([part.mT @ part for part in x.split(self.group, -1)], 1)
        traces = grams.diagonal(dim1=-2, dim2=-1).unflatten(-1, (-1, self.head_dim)).sum(-1)
        per_head = traces.clamp_min(TINY).reciprocal()[..., None, None]
        scale = (per_head * self.blocks.unflatten(0, (-1, self.head_dim))).view_as(grams)
        return grams.mul_(scale), scale

    def multiply(self, gram: Tensor, v: Tensor) -> Tensor:
        """A v for the vectors v (windows, heads, E) of all heads."""
        return (gram @ v.view(*gram.shape[:-1], 1)).view_as(v)

    def add_product(self, dx: Tensor, x: Tensor, p: Tensor, q: Tensor, scale: Tensor) -> None:
        """dX_h += X_h (P_h Q_h^T) scale, in place; p, q (windows, heads, E, S)."""
        p, q = (t.view(len(x), -1, self.group, t.shape[-1]) for t in (p, q))
        products = (p @ q.mT).mul_(scale)
        parts, dparts = x.split(self.group, -1), dx.split(self.group, -1)
        for part, dpart, product in zip(parts, dparts, products.unbind(1), strict=True):
            dpart += part @ product
