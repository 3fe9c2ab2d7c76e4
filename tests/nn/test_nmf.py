"""The mathematics of NMF, in float64 on small matrices, against independent oracles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import non_negative_factorization
from torch import Tensor

from factorizer import NMF
from factorizer.nn.nmf import draw_uniform, hals_update, mu_update
from testkit import textbook


def random_matrices(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def relative_error(got: Tensor, expected: Tensor) -> float:
    return ((got - expected).norm() / expected.norm()).item()


def sklearn_reconstruction(x: Tensor, nmf: NMF) -> Tensor:
    f, g = nmf.initial_factors(*x.shape, dtype=x.dtype)
    solver = {"hals": {"solver": "cd", "shuffle": False}, "mu": {"solver": "mu"}}[nmf.solver]
    w, h, _ = non_negative_factorization(
        x.numpy().copy(),
        W=(x.mean() * f).numpy(),
        H=np.ascontiguousarray(g.numpy().T),
        init="custom",
        n_components=nmf.rank,
        max_iter=nmf.num_iters,
        tol=0,
        **solver,
    )
    return torch.from_numpy(w @ h)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_agrees_with_scikit_learn(solver: str, rank: int, seed: int) -> None:
    x = random_matrices(8, 60, seed=seed)
    nmf = NMF(rank, num_iters=7, solver=solver, seed=seed)
    assert relative_error(nmf(x), sklearn_reconstruction(x, nmf)) < 1e-12


@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 3])
def test_agrees_with_the_textbook_in_output_and_gradient(solver: str, rank: int) -> None:
    loops = {"hals": textbook.hals, "mu": textbook.mu}
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        x = random_matrices(3, 2, 8, 64, dtype=dtype).requires_grad_()
        y = random_matrices(3, 2, 8, 64, seed=1, dtype=dtype)
        nmf = NMF(rank, num_iters=5, solver=solver, seed=4)
        f, g = nmf.initial_factors(8, 64, dtype=dtype)
        f, g = loops[solver](x, x.mean((-2, -1), keepdim=True) * f, g, 5)
        expected = f @ g.mT
        got = nmf(x)
        assert relative_error(got, expected) < tolerance
        (grad_expected,) = torch.autograd.grad(expected, x, y)
        (grad,) = torch.autograd.grad(got, x, y)
        assert relative_error(grad, grad_expected) < tolerance


@pytest.mark.parametrize("num_iters", [1, 2, 5, 20])
def test_rank_one_is_the_update_of_equation_14(num_iters: int) -> None:
    x = random_matrices(4, 6, 50)
    nmf = NMF(1, num_iters)
    f, g = textbook.rank_one(x, nmf.initial_factors(6, 50, dtype=x.dtype)[1], num_iters)
    assert relative_error(nmf(x), f @ g.mT) < 1e-13


def test_tall_matrices_take_the_smaller_gram_matrix() -> None:
    x = random_matrices(100_000, 5)
    nmf = NMF(1, 4)
    f, g = textbook.rank_one(x, nmf.initial_factors(100_000, 5, dtype=x.dtype)[1], 4)
    assert relative_error(nmf(x), f @ g.mT) < 1e-13
    f, _ = nmf.factorize(x)
    assert abs(f.norm() - 1) < 1e-12


@pytest.mark.parametrize("update", [hals_update, mu_update])
def test_loss_never_rises(update) -> None:
    x, f, g = random_matrices(8, 40), random_matrices(8, 3, seed=1), random_matrices(40, 3, seed=2)
    loss = (x - f @ g.mT).square().sum()
    for _ in range(30):
        f = update(x, f, g)
        g = update(x.mT, g, f)
        new = (x - f @ g.mT).square().sum()
        assert new <= loss * (1 + 1e-12)
        loss = new


def test_five_rank_one_iterations_reach_the_best_rank_one_approximation() -> None:
    x = random_matrices(50, 8, 512)
    singular = torch.linalg.svdvals(x)
    best = singular[:, 1:].square().sum(-1)
    error = (x - NMF(1, 5)(x)).square().sum((-2, -1))
    assert (error <= 1.0001 * best).all()


@pytest.mark.slow
def test_hals_recovers_an_exact_factorization() -> None:
    x = random_matrices(6, 2) @ random_matrices(30, 2, seed=1).mT
    assert relative_error(NMF(2, 2000)(x), x) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 3])
def test_gradcheck(solver: str, rank: int) -> None:
    x = random_matrices(2, 4, 9).requires_grad_()
    assert torch.autograd.gradcheck(NMF(rank, 3, solver), x)


@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 2])
def test_factors_are_nonnegative_with_unit_columns_and_give_the_output(
    solver: str, rank: int
) -> None:
    x = random_matrices(2, 3, 8, 27)
    nmf = NMF(rank, solver=solver)
    f, g = nmf.factorize(x)
    assert f.shape == (2, 3, 8, rank)
    assert g.shape == (2, 3, 27, rank)
    assert f.min() >= 0
    assert g.min() >= 0
    torch.testing.assert_close(f.norm(dim=-2), torch.ones(2, 3, rank, dtype=x.dtype))
    torch.testing.assert_close(f @ g.mT, nmf(x))


@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e2, 1e4])
def test_commutes_with_scaling_in_float32(solver: str, rank: int, scale: float) -> None:
    x = random_matrices(5, 8, 64, dtype=torch.float32)
    nmf = NMF(rank, 20, solver)
    assert relative_error(nmf(scale * x), scale * nmf(x)) < 1e-4


@pytest.mark.parametrize("solver", ["hals", "mu"])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("num_iters", [1, 5])
@pytest.mark.parametrize("entry", [0.0, 1e-38, 1e-20])
def test_zero_and_nearly_zero_matrices(
    solver: str, rank: int, num_iters: int, entry: float
) -> None:
    x = torch.zeros(2, 8, 64)
    x[0, 3, 5] = entry
    x.requires_grad_()
    y = NMF(rank, num_iters, solver)(x)
    assert y.abs().max() <= 2 * entry
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() <= 10


def test_zero_rows_and_columns_stay_zero() -> None:
    x = random_matrices(8, 30)
    x[2], x[:, 7] = 0, 0
    for nmf in (NMF(1), NMF(3), NMF(3, solver="mu")):
        y = nmf(x)
        assert (y[2] == 0).all()
        assert y[:, 7].abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rank", [1, 3])
def test_half_precision_is_factorized_in_float32(dtype: torch.dtype, rank: int) -> None:
    x = (1e-3 * random_matrices(4, 8, 512)).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = NMF(rank)(x)
        f, _ = NMF(rank).factorize(x)
    assert y.dtype == dtype
    assert f.dtype == torch.float32
    assert relative_error(y.double(), NMF(rank)(x.double())) < 1e-2


def test_attributes_can_be_changed_after_construction() -> None:
    x, nmf = random_matrices(8, 40), NMF(1, 5)
    nmf.rank, nmf.num_iters, nmf.solver = 3, 2, "mu"
    torch.testing.assert_close(nmf(x), NMF(3, 2, "mu")(x))
    nmf.bypass = True
    assert nmf(x) is x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"num_iters": 2.5}, "num_iters is 2.5"),
        ({"solver": "als"}, "choose one of hals, mu"),
    ],
)
def test_meaningless_settings_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NMF(**change)
    nmf = NMF()
    for name, value in change.items():
        setattr(nmf, name, value)
    with pytest.raises(ValueError, match=message):
        nmf(torch.ones(2, 2))


def test_a_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x has shape \(5,\); NMF takes matrices"):
        NMF()(torch.zeros(5))


def test_initial_factors_follow_from_the_seed_in_the_checkpoint() -> None:
    x, nmf = random_matrices(8, 40), NMF(2, seed=7)
    other = NMF(2, seed=8)
    assert not torch.equal(nmf(x), other(x))
    other.load_state_dict(nmf.state_dict())
    assert torch.equal(nmf(x), other(x))


def test_initial_factors_are_uniform_and_do_not_depend_on_the_size_or_global_state() -> None:
    many = draw_uniform(torch.tensor(5), 200_000, stream=1)
    torch.manual_seed(1)
    assert torch.equal(draw_uniform(torch.tensor(5), 1000, stream=1), many[:1000])
    assert many.min() > 0
    assert many.max() < 1
    assert many.dtype == torch.float32
    counts = torch.histc(many, 100, 0, 1)
    chi_square = ((counts - 2000).square() / 2000).sum()
    assert chi_square < 160  # 99 degrees of freedom, p = 1e-4
    other_seed = draw_uniform(torch.tensor(6), 199_999, stream=1)
    other_stream = draw_uniform(torch.tensor(5), 199_999, stream=2)
    rows = [many[:-1], many[1:], many[:-1].roll(64), other_seed, other_stream]
    assert torch.corrcoef(torch.stack(rows)).fill_diagonal_(0).abs().max() < 0.012
