"""Factorizations that the paper names as future work (Sec. 6), each a function of X (..., M, N) and first factors.

All return F (..., M, R) and G (..., N, R) with G >= 0 and X about F G^T, by tensor code that gradients pass through.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Squares below this count as zero: X itself is then below 1e-17, far under any real activation.
TINY = 1e-35
SMALL = 1e-7  # beside entries of about one: under a root, where a gradient would leave the range of float32
Variant = Callable[[Tensor, Tensor, Tensor, int, float], tuple[Tensor, Tensor]]


def semi_nmf(x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """F of any sign, so that X may have any: columns in turn, as in HALS, each the minimiser with the others fixed.

    C. Ding, T. Li, M. Jordan, "Convex and semi-nonnegative matrix factorizations", IEEE TPAMI 32 (2010).
    """
    for _ in range(num_iters):
        f = sweep(x, f, g, nonnegative=False)
        g = sweep(x.mT, g, f, nonnegative=True)
    return f, g


def sweep(x: Tensor, f: Tensor, g: Tensor, *, nonnegative: bool) -> Tensor:
    """The columns of F one after the other with G fixed; one whose partner is zero keeps its value."""
    a, b = x @ g, g.mT @ g
    columns = list(f.unbind(-1))
    for r, old in enumerate(columns):
        others = sum((b[..., s, r, None] * c for s, c in enumerate(columns) if s != r), torch.zeros_like(old))
        norm2 = b[..., r, r, None]
        best = (a[..., r] - others) / norm2.clamp_min(TINY)
        columns[r] = torch.where(norm2 > TINY, best.relu() if nonnegative else best, old)
    return torch.stack(columns, -1)


def convex_nmf(x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """F = X W with W >= 0: every pattern of channels is a mixture of voxels that are there (Ding et al., 2010).

    X must be nonnegative. W starts as G does; the updates are multiplicative, with K = X^T X never formed.
    """
    w = g
    for _ in range(num_iters):
        kw, kg = x.mT @ (x @ w), x.mT @ (x @ g)
        w = w * ratio_root(kg, kw @ (g.mT @ g))
        kw = x.mT @ (x @ w)
        g = g * ratio_root(kw, g @ (w.mT @ kw))
    return x @ w, g


def ratio_root(numerator: Tensor, denominator: Tensor) -> Tensor:
    return ((numerator + SMALL) / (denominator + SMALL)).sqrt()


def greedy_nmf(x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """One term after the other, none above what is left of X, until little is left: the rank is chosen per matrix.

    A matrix takes a further term while |rest| > `tolerance` |X|; the terms that it does not take are zero. After
    N. Gillis, F. Glineur, "Using underapproximations for sparse nonnegative matrix factorization", Pattern Recognition
    43 (2010): each term is fitted with multipliers on the entries where it would exceed the rest, then made feasible.
    """
    rest, norm2 = x, x.square().sum((-2, -1), keepdim=True)
    columns = []
    for r in range(f.shape[-1]):
        wanted = rest.square().sum((-2, -1), keepdim=True) > tolerance**2 * norm2
        u, v = underapproximate(rest, g[..., r, None], num_iters)
        v = torch.where(wanted, v, torch.zeros_like(v))
        columns.append((u, v))
        rest = (rest - u @ v.mT).relu()
    return torch.cat([u for u, _ in columns], -1), torch.cat([v for _, v in columns], -1)


def underapproximate(x: Tensor, v: Tensor, num_iters: int) -> tuple[Tensor, Tensor]:
    """A term u v^T <= X (..., M, N) from a first v (..., N, 1): u (..., M, 1) of unit norm, v (..., N, 1)."""
    multipliers, u = torch.zeros_like(x), torch.zeros(0)
    for step in range(1, num_iters + 1):
        excess = x - multipliers
        u = unit((excess @ v).relu() + SMALL * (x @ v))
        v = (excess.mT @ u).relu()
        multipliers = (multipliers - (x - u @ v.mT) / step).relu()
    limit = torch.where(u > SMALL, x / u.clamp_min(SMALL), torch.inf).amin(-2)[..., None]  # the largest v that fits
    return torch.where(u > SMALL, u, torch.zeros_like(u)), torch.minimum(x.mT @ u, limit.clamp_max(x.amax() / SMALL))


def unit(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v, dim=-2, keepdim=True).clamp_min(1e-17)


VARIANTS: dict[str, Variant] = {"semi": semi_nmf, "convex": convex_nmf, "greedy": greedy_nmf}
