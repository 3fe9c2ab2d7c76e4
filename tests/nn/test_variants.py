"""The factorizations beyond the paper: what each promises, alone, in a layer and in a network."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from factorizer import NMF, LocalMatricize, WrappedNMF
from factorizer.nn.nmf import SOLVERS
from factorizer.nn.variants import VARIANTS, underapproximate
from testkit.small import build_small


def matrices(
    seed: int = 0, shape: tuple[int, ...] = (3, 6, 20), *, signed: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x if signed else x.relu()


def loss(x: torch.Tensor, solver: str, rank: int, num_iters: int, **options: float) -> torch.Tensor:
    y = NMF(rank, num_iters, solver, **options)(x)
    return (x - y).square().sum((-2, -1))


@pytest.mark.parametrize("solver", ["semi", "convex"])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_more_iterations_never_fit_worse(solver: str, rank: int) -> None:
    x = matrices(signed=solver == "semi")
    losses = [loss(x, solver, rank, t) for t in range(1, 15)]
    for before, after in pairwise(losses):
        assert (after <= before * (1 + 1e-6)).all()
    assert (losses[-1] < losses[0]).all()


@pytest.mark.parametrize("solver", VARIANTS)
def test_factors_have_their_signs_and_unit_columns(solver: str) -> None:
    x = matrices(signed=solver == "semi")
    f, g = NMF(3, 8, solver, tolerance=0.0).factorize(x)
    assert (g >= 0).all()
    terms = 4 if solver == "joint" else 3
    torch.testing.assert_close(
        torch.linalg.vector_norm(f, dim=-2), torch.ones(3, terms, dtype=f.dtype)
    )
    assert (f < 0).any() if solver == "semi" else (f >= 0).all()


@pytest.mark.parametrize("rank", [1, 3])
def test_semi_nmf_recovers_left_factors_of_any_sign(rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(6, rank, generator=generator, dtype=torch.float64)
    right = torch.eye(rank, dtype=torch.float64).repeat_interleave(5, 0) + 0.1
    x = left @ right.mT
    assert loss(x, "semi", rank, 400).item() < 1e-6 * x.square().sum().item()


def test_convex_factors_are_mixtures_of_columns() -> None:
    """F = X W: every column of F lies in the cone of the columns of X."""
    from scipy.optimize import nnls

    x = matrices(2, (6, 20))
    f, _ = NMF(3, 10, "convex").factorize(x)
    for column in f.mT:
        assert nnls(x.numpy(), column.numpy())[1] < 1e-8


@pytest.mark.parametrize(
    ("solver", "limits"), [("convex", (0.85, 0.8, 0.75)), ("greedy", (0.92, 0.85, 0.7))]
)
def test_more_terms_of_sparse_matrices_leave_less(solver: str, limits: tuple[float, ...]) -> None:
    """Half of the entries are zero, as after ReLU.

    HALS leaves 0.76, 0.68 and 0.54 of the norm with 1, 2 and 4 terms.
    """
    x = matrices(3, (16, 8, 64))
    left = [
        (loss(x, solver, rank, 5, tolerance=0.0) / x.square().sum((-2, -1))).sqrt()
        for rank in (1, 2, 4)
    ]
    assert all(after.mean() < before.mean() for before, after in pairwise(left))
    for some, limit in zip(left, limits, strict=True):
        assert some.mean() < limit


def test_one_iteration_of_convex_nmf_finds_matrices_of_rank_one() -> None:
    x = torch.rand(3, 8, 1, dtype=torch.float64) @ torch.rand(3, 1, 64, dtype=torch.float64)
    assert (loss(x, "convex", 2, 1) < 1e-6 * x.square().sum((-2, -1))).all()


def test_greedy_terms_come_below_the_matrix() -> None:
    x = matrices(3, (4, 6, 20))

    def share_above(num_iters: int) -> float:
        u, v = underapproximate(x, torch.rand(4, 20, 1, dtype=x.dtype), num_iters)
        assert (u @ v.mT).sum((-2, -1)).min() > 0
        return float((u @ v.mT - x).relu().norm() / x.norm())

    shares = [share_above(t) for t in (1, 2, 4, 8)]
    assert shares[0] > 0.3  # without multipliers
    assert all(after < before for before, after in pairwise(shares))
    assert shares[-1] < 0.1


@pytest.mark.parametrize("num_iters", [1, 2, 5])
def test_greedy_terms_never_add_to_the_rest_and_stop_where_little_is_left(num_iters: int) -> None:
    """Also with few iterations, where terms are above the matrix."""
    x = matrices(3, (16, 8, 64))

    def rest(f: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return (x - f @ g.mT).norm(dim=(-2, -1)) / x.norm(dim=(-2, -1))

    f, g = NMF(8, num_iters, "greedy", tolerance=0.0).factorize(x)
    left = [rest(f[..., :r], g[..., :r]) for r in range(1, 9)]
    assert left[0].max() < 0.95
    assert all((after <= before + 1e-12).all() for before, after in pairwise(left))
    tolerance = float(left[1].mean())  # which some matrices reach with two terms
    _, some = NMF(8, num_iters, "greedy", tolerance=tolerance).factorize(x)
    reached = left[1] <= tolerance
    assert 0 < reached.sum() < len(x)
    assert not some[reached, :, 2:].any()
    assert torch.equal(some[~reached, :, :3], g[~reached, :, :3])


def test_greedy_chooses_the_rank_of_each_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.zeros(2, 6, 20, dtype=torch.float64)
    blocks[:, :3, :10] = torch.rand(3, 1, generator=generator, dtype=torch.float64) * torch.ones(
        10, dtype=torch.float64
    )
    blocks[1, 3:, 10:] = 0.5
    _, g = NMF(4, 10, "greedy", tolerance=0.05).factorize(blocks)
    used = (g.abs().sum(-2) > 0).sum(-1)
    assert used.tolist() == [1, 2]
    assert loss(blocks, "greedy", 4, 10, tolerance=0.05).max() < 0.01 * blocks.square().sum()


def windows_of_a_map(seed: int = 6) -> torch.Tensor:
    """Eight windows (6 x 20) with one pattern of channels in common and one of their own each."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    return draw(6, 1) @ draw(8, 1, 20) + draw(8, 6, 1) @ draw(8, 1, 20)


@pytest.mark.parametrize("rank", [1, 3])
def test_joint_objective_never_rises_over_all_windows_together(rank: int) -> None:
    x = matrices(7, (2, 5, 6, 20))
    losses = [loss(x, "joint", rank, t).sum(-1) for t in range(1, 15)]
    for before, after in pairwise(losses):
        assert (after <= before * (1 + 1e-12)).all()


def test_joint_windows_share_their_first_pattern_and_no_other() -> None:
    f, _ = NMF(1, 20, "joint").factorize(torch.stack([windows_of_a_map(6), windows_of_a_map(7)]))
    assert torch.equal(f[:, :1, :, 0].expand(-1, 8, -1), f[..., 0])
    assert (f[:, :-1, :, 1] - f[:, 1:, :, 1]).abs().amax((-2, -1)).min() > 0.01
    assert (f[0, 0, :, 0] - f[1, 0, :, 0]).abs().max() > 0.01  # another map, another pattern


def test_joint_recovers_what_is_shared_and_what_is_not() -> None:
    x = windows_of_a_map()
    assert loss(x, "joint", 1, 500).sum() < 1e-3 * x.square().sum()
    assert loss(x, "joint", 1, 5).sum() < 0.5 * loss(x, "hals", 1, 5).sum()


def test_joint_of_one_window_is_hals_with_a_term_more() -> None:
    x = matrices(8, (1, 6, 20))
    torch.testing.assert_close(NMF(2, 6, "joint")(x), NMF(3, 6, "hals")(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        NMF(2, 6, "joint")(x[0]), NMF(3, 6, "hals")(x[0]), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("solver", "reaches"), [("hals", False), ("joint", True)])
def test_joint_layer_sees_the_whole_map_of_its_sample(solver: str, reaches: bool) -> None:
    """A change in one corner changes the windows of the other corner, but no other sample."""
    torch.manual_seed(0)
    layer = WrappedNMF(8, LocalMatricize(4, 4), NMF(1, 3, solver), spatial_size=(8, 8, 8)).double()
    x = torch.randn(2, 8, 8, 8, 8, dtype=torch.float64)
    changed = x.clone()
    changed[0, :, :4, :4, :4] += 1
    difference = (layer(changed) - layer(x)).abs()
    assert difference[0, :, :4, :4, :4].max() > 1e-3
    assert (difference[0, :, 4:, 4:, 4:].max() > 1e-6) == reaches
    assert difference[1].max() == 0


@pytest.mark.slow
@pytest.mark.parametrize("solver", VARIANTS)
@pytest.mark.parametrize("rank", [1, 2])
def test_gradients(solver: str, rank: int) -> None:
    x = (matrices(4, (2, 3, 5), signed=solver == "semi") + 0.1).requires_grad_()
    layer = NMF(rank, 3, solver, tolerance=0.0)
    assert torch.autograd.gradcheck(layer, x, atol=1e-4)


@pytest.mark.parametrize("solver", VARIANTS)
def test_scale_and_zero(solver: str) -> None:
    x = matrices(5, signed=solver == "semi")
    layer = NMF(2, 5, solver)
    torch.testing.assert_close(layer(1000 * x), 1000 * layer(x), rtol=1e-6, atol=1e-6)
    zero = torch.zeros(2, 4, 6, requires_grad=True)
    y = layer(zero)
    y.sum().backward()
    assert y.detach().abs().max() < 1e-30
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("solver", VARIANTS)
def test_tiles_compute_what_the_whole_map_does(solver: str) -> None:
    """The layer with its own backward pass, against matricize, NMF, dematricize and autograd."""
    torch.manual_seed(0)
    cut = LocalMatricize(4, 4)
    layer = WrappedNMF(8, cut, NMF(2, 3, solver), spatial_size=(8, 8, 8)).double()
    x = torch.randn(1, 8, 8, 8, 8, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    projected = layer.in_proj(x.movedim(1, -1)).movedim(-1, 1)
    projected = projected if solver == "semi" else projected.relu()
    whole = cut.dematricize(layer.nmf(cut.matricize(projected)), (8, 8, 8))
    expected = layer.out_proj(whole.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(y, expected, rtol=1e-8, atol=1e-8)
    (ours,), (theirs,) = (
        torch.autograd.grad(z.square().sum(), x, retain_graph=True) for z in (y, expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [*SOLVERS, *VARIANTS])
def test_networks_learn_with_every_solver(solver: str) -> None:
    torch.manual_seed(0)
    model = build_small("swin-factorizer", solver=solver, rank=2, num_iters=3)
    x = torch.randn(1, 2, 16, 16, 16)
    target = (x[:, :1] > 0).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(12):
        logits = model(x)[0]
        value = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("solver", [*SOLVERS, *VARIANTS])
def test_gradients_of_sparse_matrices_do_not_explode(solver: str) -> None:
    """Most entries are zero, as deep in a trained network; single precision."""
    x = (matrices(9, (500, 8, 64), signed=True).float() - 1.5).relu().requires_grad_()
    layer = NMF(2, 5, solver)
    layer(x).mul(torch.randn(x.shape)).sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() < 1e5


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_columns_that_became_rounding_noise_are_not_divided_by(rank: int) -> None:
    """In these windows few voxels are not zero: their rank is below that of the factorization."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(500, 8, 64, generator=generator)
    x = (x * (torch.rand(500, 1, 64, generator=generator) < 0.03)).requires_grad_()
    NMF(rank, 5)(x).mul(torch.randn(x.shape, generator=generator)).sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() < 1e3
