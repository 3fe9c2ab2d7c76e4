"""Factorizations that the paper names as future work (Sec. 6).

Each is a function of X (..., M, N), initial factors F_0 (..., M, R) and G_0 (..., N, R), the number
of iterations T and a tolerance. It returns F (..., M, R) and G (..., N, R) with G >= 0 and F G^T
near X. Gradients pass through all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from factorizer.nn.updates import hals_update

# small beside entries of about one; keeps gradients of roots and quotients in the range of float32
SMALL = 1e-7
Variant = Callable[[Tensor, Tensor, Tensor, int, float], tuple[Tensor, Tensor]]


def semi_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """F of any sign, so that X may have any sign.

    The columns are updated in turn, as in HALS: each becomes the minimiser with the others fixed.
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
    """Local and global context in one objective: all windows share the first column of F.

    The windows w of a map lie along the last leading dimension. The objective is the sum over them
    of |X_w - f_0 a_w^T - F_w G_w^T|^2, where f_0, the first column of F, is the same for all
    windows. It is minimised by HALS; the update of f_0 adds up over the windows. So every
    window depends on the whole map.
    """
    shared = 1 if x.ndim > 2 else 0
    for _ in range(num_iters):
        f = hals_update(x, f, g, shared=shared)
        g = hals_update(x.mT, g, f)
    return f, g


def convex_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """F = X W with W >= 0: every column of F is a mixture of voxels (Ding et al., 2010).

    X must be nonnegative. Each column of W starts mostly on a few voxels, because mixtures of all
    voxels would be the same. It has a little of every voxel, because those few may be zero. W is
    updated multiplicatively, without forming K = X^T X, and G by HALS. The columns of F are kept at
    unit norm, with the scale in G; the gradient takes the norms as constants.
    """
    w = g**16 + 0.01
    f = x @ w
    for _ in range(num_iters):
        norm = torch.linalg.vector_norm(f.detach(), dim=-2, keepdim=True)
        scale = torch.where(norm > SMALL, norm, 1.0)
        w, f, g = w / scale, f / scale, g * scale
        g = hals_update(x.mT, g, f)
        wanted, present = x.mT @ (x @ g), (x.mT @ f) @ (g.mT @ g)
        damping = 0.01 * present.mean(-2, keepdim=True) + SMALL  # no leaps where little is present
        w = w * (wanted + damping) / (present + damping)
        f = x @ w
    return f, hals_update(x.mT, g, f)


def greedy_nmf(
    x: Tensor, f: Tensor, g: Tensor, num_iters: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """One term after the other, until little of X is left: each matrix gets its own rank.

    Each term is pressed below the rest of X. Where it exceeds the rest all the same, the rest
    becomes negative. A term is shortened if that leaves less, so no term enlarges the rest. A
    matrix takes a further term while |rest| > `tolerance` |X|; the terms that it does not take are
    zero.

    After N. Gillis, F. Glineur, "Using underapproximations for sparse nonnegative matrix
    factorization", Pattern Recognition 43 (2010).
    """
    rest, norm2 = x, x.square().sum((-2, -1), keepdim=True)
    terms = []
    for r in range(f.shape[-1]):
        wanted = rest.square().sum((-2, -1), keepdim=True) > tolerance**2 * norm2
        u, v = underapproximate(rest.relu(), g[..., r, None], num_iters)
        norm2_v = v.square().sum(-2, keepdim=True) + SMALL
        best = (v * (rest.mT @ u)).sum(-2, keepdim=True) / norm2_v
        u, v = torch.where(wanted, u, 0.0), torch.where(wanted, v * best.clamp(0, 1), 0.0)
        terms.append((u, v))
        rest = rest - u @ v.mT
    us, vs = zip(*terms, strict=True)
    return torch.cat(us, -1), torch.cat(vs, -1)


def underapproximate(x: Tensor, v: Tensor, num_iters: int) -> tuple[Tensor, Tensor]:
    """A term u v^T of X (..., M, N) from an initial v (..., N, 1).

    Returns u (..., M, 1) of unit norm and v (..., N, 1). Multipliers on the entries where u v^T
    exceeds X press it down: the more iterations, the less exceeds X.
    """
    multipliers, u = torch.zeros_like(x), torch.zeros(0)
    for step in range(1, num_iters + 1):
        excess = x - multipliers
        u = unit((excess @ v).relu() + SMALL * (x @ v))
        pressed = (excess.mT @ u).relu()
        alive = pressed.sum(-2, keepdim=True) > 0  # a zero v would stay zero
        v = torch.where(alive, pressed, v)
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
