"""One update of a factor with the other fixed (Algorithms 1 and 2).

X (..., M, N) is approximated by F G^T with F (..., M, R) and G (..., N, R). The update of G is that
of F on X^T.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Update = Callable[[Tensor, Tensor, Tensor], Tensor]

# Squares below this count as zero. X itself is then below 1e-17, far below any real activation.
TINY = 1e-35
# A column whose square is below this share of the largest is rounding noise: dividing by it would
# explode.
ROUNDING = 1e-10


def hals_update(
    x: Tensor, f: Tensor, g: Tensor, *, nonnegative: bool = True, shared: int = 0
) -> Tensor:
    """One sweep over the columns of F with G fixed (Algorithm 2, lines 3-5; Eq. 13).

    Each column becomes the minimiser with the other columns fixed. A column whose partner is zero
    has no unique minimiser and keeps its value. The first `shared` columns are the same for all
    matrices along the last leading dimension: they minimise the sum of the errors.
    """
    a, b = x @ g, g.mT @ g  # (..., M, R), (..., R, R)
    largest = b.detach().diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    zero = (ROUNDING * largest).clamp_min(TINY)  # (..., 1)
    columns = list(f.unbind(-1))
    for r, old in enumerate(columns):
        numerator, norm2, least = a[..., r], b[..., r, r, None], zero
        for other, column in enumerate(columns):
            if other != r:
                numerator = numerator - b[..., other, r, None] * column
        if r < shared:
            numerator, norm2, least = map(sum_over_matrices, (numerator, norm2, least))
        best = numerator / norm2.clamp_min(least)
        columns[r] = torch.where(norm2 > least, best.relu() if nonnegative else best, old)
    return torch.stack(columns, -1)


def sum_over_matrices(v: Tensor) -> Tensor:
    """The sum of v (..., matrices, M) over the matrices, for each of them: the same shape."""
    return v.sum(-2, keepdim=True).expand_as(v)


def mu_update(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
    """One multiplicative update of F with G fixed (Algorithm 1, line 3)."""
    return f * (x @ g) / (f @ (g.mT @ g)).clamp_min(TINY)
