"""Factorizations that the paper names as future work (Sec. 6), each a function of X (..., M, N) and
first factors.

All return F (..., M, R) and G (..., N, R) with G >= 0 and X about F G^T, by tensor code that
gradients pass through.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from factorizer.nn.updates import hals_update

# beside entries of about one: under a root, where a gradient would leave the range of float32
SMALL = 1e-7
Variant = Callable[[Tensor, Tensor, Tensor, int, float], tuple[Tensor, Tensor]]


def semi_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """F of any sign, so that X may have any: columns in turn, as in HALS, each the minimiser with
    the others fixed.

    C. Ding, T. Li, M. Jordan, "Convex and semi-nonnegative matrix factorizations", IEEE TPAMI 32
    (2010).
    """
    for _ in range(num_iters):
        f = hals_update(x, f, g, nonnegative=False)
        g = hals_update(x.mT, g, f)
    return f, g


def joint_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Local and global context in one objective: a first pattern of all windows together, the
    others of each its own.

    The windows w of a map lie along the last leading dimension. Minimised is the sum over them of
    |X_w - f_0 a_w^T - F_w G_w^T|^2, where f_0, the first column of F, is the same for all: HALS, in
    which the update of f_0 adds up over the windows. So what is anywhere in the map tells on every
    window.
    """
    shared = 1 if x.ndim > 2 else 0
    for _ in range(num_iters):
        f = hals_update(x, f, g, shared=shared)
        g = hals_update(x.mT, g, f)
    return f, g


def convex_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """F = X W with W >= 0: every pattern of channels is a mixture of voxels that are there (Ding et
    al., 2010).

    X must be nonnegative. Each column of W starts mostly on a few voxels, as mixtures of all would
    be alike, and with something of every voxel, as those few may be zero. It is updated
    multiplicatively, with K = X^T X never formed; G by HALS. The scale of a column of F, which G
    makes up for, is kept at one, as a constant to the gradient.
    """
    w = g**16 + 0.01
    f = x @ w
    for _ in range(num_iters):
        norm = torch.linalg.vector_norm(f.detach(), dim=-2, keepdim=True)
        scale = torch.where(norm > SMALL, norm, 1.0)
        w, f, g = w / scale, f / scale, g * scale
        g = hals_update(x.mT, g, f)
        wanted, there = x.mT @ (x @ g), (x.mT @ f) @ (g.mT @ g)
        damping = 0.01 * there.mean(-2, keepdim=True) + SMALL  # against leaps where little is there
        w = w * (wanted + damping) / (there + damping)
        f = x @ w
    return f, hals_update(x.mT, g, f)


def greedy_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """One term after the other, pressed below what is left of X, until little is left: the rank is
    chosen per matrix.

    What is above all the same stays in the rest, as negative entries; a term is shortened where
    that leaves less, so none adds to the rest. A matrix takes a further term while |rest| >
    `tolerance` |X|; the terms that it does not take are zero. After N. Gillis, F. Glineur, "Using
    underapproximations for sparse nonnegative matrix factorization", Pattern Recognition 43 (2010).
    """
    rest, norm2 = x, x.square().sum((-2, -1), keepdim=True)
    terms = []
    for r in range(f.shape[-1]):
        wanted = rest.square().sum((-2, -1), keepdim=True) > tolerance**2 * norm2
        u, v = underapproximate(rest.relu(), g[..., r, None], num_iters)
        best = (v * (rest.mT @ u)).sum(-2, keepdim=True) / (
            v.square().sum(-2, keepdim=True) + SMALL
        )
        u, v = torch.where(wanted, u, 0.0), torch.where(wanted, v * best.clamp(0, 1), 0.0)
        terms.append((u, v))
        rest = rest - u @ v.mT
    us, vs = zip(*terms, strict=True)
    return torch.cat(us, -1), torch.cat(vs, -1)


def underapproximate(x: Tensor, v: Tensor, num_iters: int) -> tuple[Tensor, Tensor]:
    """A term u v^T of X (..., M, N) from a first v (..., N, 1): u (..., M, 1) of unit norm, v (...,
    N, 1).

    Multipliers on the entries where u v^T exceeds X press it below: the more iterations, the less
    is above.
    """
    multipliers, u = torch.zeros_like(x), torch.zeros(0)
    for step in range(1, num_iters + 1):
        excess = x - multipliers
        u = unit((excess @ v).relu() + SMALL * (x @ v))
        pressed = (excess.mT @ u).relu()
        v = torch.where(
            pressed.sum(-2, keepdim=True) > 0, pressed, v
        )  # else it could not come back from zero
        multipliers = (multipliers - (x - u @ v.mT) / step).relu()
    return u, v


def unit(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v, dim=-2, keepdim=True).clamp_min(1e-17)


VARIANTS: dict[str, Variant] = {
    "semi": semi_nmf,
    "convex": convex_nmf,
    "greedy": greedy_nmf,
    "joint": joint_nmf,
}
