"""Nonnegative matrix factorization as a differentiable layer (Eq. 9-14, Algorithms 1 and 2).

A nonnegative matrix X (M x N) is approximated by F G^T with F (M x R) and G (N x R). T updates
start from fixed pseudo-random factors. Everything here is pure tensor code over any leading
dimensions; `NMF` is the thin module on top.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.nn.updates import TINY, Update, hals_update, mu_update
from factorizer.nn.variants import VARIANTS

RESCALE_EVERY = 4  # power steps
SOLVERS: dict[str, Update] = {"hals": hals_update, "mu": mu_update}


def unit_columns(f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Move the scale of each rank-one term into G, so that the columns of F have unit norm."""
    norm = torch.linalg.vector_norm(f, dim=-2, keepdim=True)  # (..., 1, R)
    return f / norm.clamp_min(TINY), g * norm


def leading_direction(gram: Tensor, start: Tensor, num_iters: int) -> Tensor:
    """The unit factor f after T rank-one updates (Eq. 14), from the Gram matrix alone.

    With R = 1 both solvers alternate f <- X g / |g|^2 and g <- X^T f / |f|^2. Inserting one into
    the other gives f <- A f up to scale, with A = X X^T; and the product f g^T does not depend on
    the scale of f. So T updates are T - 1 power steps on the small matrix A, starting at X g_0.

    gram (..., M, M), start = X g_0 (..., M) -> f (..., M), unit norm (zero where X is zero).
    """
    # Neither scale below changes the direction, so both are constants to the gradient. With A of
    # unit trace a step shrinks v at most M-fold, so that rescaling now and then keeps it in range.
    gram = gram / trace(gram.detach())
    v = start / norm(start.detach())
    for t in range(1, num_iters):
        v = (gram @ v[..., None]).squeeze(-1)
        if t % RESCALE_EVERY == 0 and t < num_iters - 1:
            v = v / norm(v.detach())
    return v / norm(v)


def rank_one_factor(x: Tensor, g0: Tensor, num_iters: int) -> Tensor:
    """f after T rank-one updates of x (..., M, N) from g0 (N, 1) -> (..., M, 1), unit norm.

    The power steps run on the smaller side: A^(T-1) X g_0 = X (X^T X)^(T-1) g_0.
    """
    m, n = x.shape[-2:]
    if m <= n:
        return leading_direction(x @ x.mT, (x @ g0).squeeze(-1), num_iters)[..., None]
    start = g0.squeeze(-1).expand(*x.shape[:-2], n)
    f = (x @ leading_direction(x.mT @ x, start, num_iters)[..., None]).squeeze(-1)
    return (f / norm(f))[..., None]


def trace(gram: Tensor) -> Tensor:
    """The trace of matrices (..., M, M) as (..., 1, 1), kept away from zero."""
    return gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp_min(TINY)


def norm(v: Tensor) -> Tensor:
    """|v| of vectors (..., M) as (..., 1), kept away from zero: v / |v| has at most unit norm."""
    return torch.linalg.vector_norm(v, dim=-1, keepdim=True).clamp_min(1e-17)


def draw_uniform(seed: Tensor, count: int, stream: int) -> Tensor:
    """`count` pseudo-random numbers ~ U(0, 1) from an integer hash of (seed, stream, index).

    The hash is exact integer arithmetic modulo the prime p = 2^31 - 1, where x -> x^5 is a
    permutation. Any device, export or compiler therefore gives the same bits. The first numbers do
    not depend on `count`.
    """
    p = 2**31 - 1
    x = torch.arange(1, count + 1, device=seed.device)
    for multiplier, offset in ((1_664_525, seed * 69_621 + 1), (48_271, stream * 40_692 + 1)):
        x = (x * multiplier + offset % p) % p
        square = x * x % p
        x = square * square % p * x % p
    return ((x // 256).to(torch.float32) + 0.5) / 2**23  # the top 23 bits: exact, never 0 or 1


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """A context without autocast on the device of x. Divisions in NMF need float32's range."""
    if x.device.type == "meta":
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def widen(x: Tensor) -> Tensor:
    """Half precision becomes float32; any other tensor stays as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class NMF(nn.Module):
    """Low-rank approximation F G^T of nonnegative matrices (..., M, N) (Eq. 9-14).

    Gradients pass through all updates. The attributes `rank`, `num_iters`, `solver` and `bypass`
    (output = input) may be changed at any time, also after training.

    The initial factors ~ U(0, 1) follow from `seed`, whatever the size of the matrices. They are
    meant for matrices of unit mean, so X is scaled to unit mean first. With rank 1 or "mu" the
    scale of F_0 has no effect.

    Args:
        rank: R, the number of terms.
        num_iters: T, the number of updates of each factor.
        solver: "hals" (Algorithm 2) or "mu" (Algorithm 1), or one of variants.py. "semi" takes
            matrices of any sign. "convex" makes F from columns of X. "greedy" chooses the rank of
            each matrix. "joint" adds a term whose column of F is the same for all matrices along
            the last leading dimension.
        tolerance: "greedy" stops when the rest is below this share of the matrix.
        seed: Where the initial factors follow from. It is saved in checkpoints.

    >>> import torch
    >>> from factorizer import NMF
    >>> nmf = NMF(rank=2, num_iters=20)
    >>> x = torch.rand(5, 8, 64)
    >>> tuple(nmf(x).shape)
    (5, 8, 64)
    >>> f, g = nmf.factorize(x)
    >>> tuple(f.shape), tuple(g.shape)
    ((5, 8, 2), (5, 64, 2))
    """

    seed: Tensor

    def __init__(
        self,
        rank: int = 1,
        num_iters: int = 5,
        solver: str = "hals",
        *,
        tolerance: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.rank = rank
        self.num_iters = num_iters
        self.solver = solver
        self.bypass = False
        self.tolerance = tolerance
        self.register_buffer("seed", torch.tensor(seed))
        self.check()

    def check(self) -> None:
        """Raise an error if an attribute was set to a value that has no meaning."""
        for name in ("rank", "num_iters"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise FactorizerError(
                    f"{name} is {value!r}; it must be a whole number of at least 1"
                )
        known = (*SOLVERS, *VARIANTS)
        if self.solver not in known:
            raise FactorizerError(f"solver is {self.solver!r}; choose one of {', '.join(known)}")

    @property
    def takes_any_sign(self) -> bool:
        """Whether matrices may be negative, so that no ReLU is needed before."""
        return self.solver == "semi"

    @property
    def is_rank_one_iteration(self) -> bool:
        """Whether the factorization is T power steps, for which a fast path exists."""
        return self.rank == 1 and self.solver in SOLVERS

    @property
    def joins_windows(self) -> bool:
        """Whether all windows of a map must come together, as (..., windows, M, N)."""
        return self.solver == "joint"

    @property
    def terms(self) -> int:
        """The number of columns of F and G."""
        return self.rank + self.joins_windows

    def extra_repr(self) -> str:
        more = f", tolerance={self.tolerance}" if self.solver == "greedy" else ""
        more += ", bypass=True" if self.bypass else ""
        return f"rank={self.rank}, num_iters={self.num_iters}, solver={self.solver!r}{more}"

    def initial_factors(self, m: int, n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """F_0 (M, R) and G_0 (N, R)."""
        f = draw_uniform(self.seed, m * self.terms, stream=1).view(m, self.terms)
        g = draw_uniform(self.seed, n * self.terms, stream=2).view(n, self.terms)
        return f.to(dtype), g.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., M, N), nonnegative -> its approximation F G^T (..., M, N), in the dtype of x."""
        if self.bypass:
            return x
        f, g = self.factorize(x)
        return (f @ g.mT).to(x.dtype)

    def factorize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., M, N) -> F (..., M, R) with unit columns and G (..., N, R) with the scale.

        x must be nonnegative, except for "semi". Half precision is factorized in float32, whose
        range the divisions need.
        """
        self.check()
        if x.ndim < 2:
            raise FactorizerError(f"x has shape {tuple(x.shape)}; NMF takes matrices (..., M, N)")
        with full_precision(x):
            x = widen(x)
            f, g = self.initial_factors(x.shape[-2], x.shape[-1], dtype=x.dtype)
            if self.is_rank_one_iteration:
                f = rank_one_factor(x, g, self.num_iters)
                return f, x.mT @ f
            # The first HALS sweep weighs X against F_0: at unit mean the result scales with X.
            together = (-3, -2, -1) if self.joins_windows and x.ndim > 2 else (-2, -1)
            scale = x.abs().mean(together, keepdim=True).clamp_min(TINY)
            f, g = (t.expand(*x.shape[:-2], -1, -1) for t in (f, g))
            f, g = unit_columns(*self.solve(x / scale, f, g))
            return f, g * scale

    def solve(self, x: Tensor, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """F and G after T updates of F_0 (..., M, R) and G_0 (..., N, R)."""
        if self.solver in VARIANTS:
            return VARIANTS[self.solver](x, f, g, self.num_iters, self.tolerance)
        update = SOLVERS[self.solver]
        for _ in range(self.num_iters):
            f = update(x, f, g)
            g = update(x.mT, g, f)
        return f, g
