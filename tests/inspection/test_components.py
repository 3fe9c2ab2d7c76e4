"""Components of layers: against the layer's own result, over windows, patches and files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu

from factorizer.evaluation.metrics import dice
from factorizer.inspection.alignment import Alignment, align, best_per_region, summarize
from factorizer.inspection.components import Viewer, choose_layers, factorize, layers_of
from factorizer.models.conv_factorizer import ConvFactorizerBlock
from factorizer.nn.blocks import ResidualNMF
from testkit.small import build_small


@pytest.mark.parametrize(
    "name", ["global-factorizer", "local-factorizer", "swin-factorizer", "conv-factorizer"]
)
@pytest.mark.parametrize(("rank", "solver"), [(1, "hals"), (2, "hals"), (2, "semi")])
def test_factors_give_the_layer_back(name: str, rank: int, solver: str) -> None:
    """F G^T of every window, dematricized and projected, is what the layer adds to its input."""
    torch.manual_seed(0)
    layer = next(
        m
        for m in build_small(name, rank=rank, solver=solver).eval().modules()
        if isinstance(m, ResidualNMF)
    )
    x = torch.randn(1, 8, 16, 16, 16)
    wrapped = layer.wrapped_nmf
    with torch.no_grad():
        f, _, pictures = factorize(layer, x)
        assert pictures.shape == (1, rank * 8 // wrapped.matricize.head_dim, 16, 16, 16)
        torch.testing.assert_close(
            torch.linalg.vector_norm(f, dim=-2), torch.ones_like(f[..., 0, :])
        )
        matricize = wrapped.matricize.fitted(x.shape[2:])
        projected = wrapped.in_proj(layer.norm(x.movedim(1, -1))).movedim(-1, 1)
        projected = projected if solver == "semi" else projected.relu()
        _, g = wrapped.nmf.factorize(matricize.matricize(projected))
        product = matricize.dematricize(f @ g.mT, x.shape[2:])
        rebuilt = x + wrapped.out_proj(product.movedim(1, -1)).movedim(-1, 1)
        torch.testing.assert_close(rebuilt, layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"mixer": "none"}], ids=["nmf", "no nmf"])
def test_a_conv_factorizer_can_be_looked_into(options: dict[str, str]) -> None:
    layers = layers_of(build_small("conv-factorizer", **options))
    assert [layer.number for layer in layers] == [1, 2, 3, 4, 5]
    kind = ConvFactorizerBlock if options else ResidualNMF
    assert all(isinstance(layer.part, kind) for layer in layers)


@pytest.mark.parametrize("name", ["swin-factorizer", "conv-factorizer"])
def test_layers_are_numbered_along_the_data_path(name: str) -> None:
    network = build_small(name).eval()
    layers = layers_of(network)
    assert [layer.number for layer in layers] == [1, 2, 3, 4, 5]  # three levels
    seen: list[int] = []
    for layer in layers:
        layer.part.register_forward_hook(lambda *_, number=layer.number: seen.append(number))
    with torch.no_grad():
        network(torch.randn(1, 2, 16, 16, 16))
    assert seen == [1, 2, 3, 4, 5]
    assert [layer.number for layer in choose_layers(layers, "both")] == [1, 5]
    assert [layer.number for layer in choose_layers(layers, "2,4,2")] == [2, 4]
    with pytest.raises(
        ValueError, match="layer is '9'; give first, last, both, all, or numbers from 1 to 5"
    ):
        choose_layers(layers, "9")
    with pytest.raises(ValueError, match="no blocks that can be inspected"):
        layers_of(build_small("unetr"))


def test_a_viewer_leaves_the_network_alone_and_takes_convolutions_too() -> None:
    for name, count in (("swin-factorizer", 2), ("nnunet", 16)):
        network = build_small(name).eval()
        x = torch.randn(1, 2, 16, 16, 16)
        with torch.no_grad():
            before = network(x)
            layers = layers_of(network)[1:2]
            pictures = Viewer(network, layers)(x)
            assert torch.equal(network(x), before)
        assert pictures.shape == (1, count, 16, 16, 16)
        assert (pictures >= 0).all() == (name == "swin-factorizer")


def test_alignment_against_others() -> None:
    generator = np.random.default_rng(0)
    mask = generator.random(500) < 0.2
    picture = np.round(generator.normal(mask * 1.0, 1.0), 1)  # with ties
    ((best, chance, auc),) = align(picture, mask[None])
    assert chance == pytest.approx(dice(np.ones(500, bool), mask))
    expected = mannwhitneyu(picture[mask], picture[~mask]).statistic / (mask.sum() * (~mask).sum())
    assert auc == pytest.approx(expected)
    assert best == pytest.approx(max(dice(picture >= cut, mask) for cut in np.unique(picture)))
    ((scaled, _, _),) = align(1000 * picture + 5, mask[None])
    assert scaled == best
    ((dark, _, _),) = align(
        -mask.astype(float), mask[None]
    )  # a picture with a hole where the region is
    assert Alignment("c", 1, 1, "ET", dark, chance, 0.0).gain == pytest.approx(0)
    assert np.isnan(align(picture, np.zeros((1, 500), bool))[0]).all()


def test_a_summary_is_over_the_cases_that_have_the_region() -> None:
    rows = [
        Alignment(f"c{i}", 1, p, "ET", 0.2 * p + 0.01 * i, 0.1, 0.9)
        for i in range(5)
        for p in (1, 2)
    ]
    rows.append(Alignment("c9", 1, 1, "ET", *[float("nan")] * 3))
    first, second = summarize(rows)
    assert (first.cases, second.component) == (5, 2)
    assert first.dice == pytest.approx(0.22)
    assert first.dice_low <= first.dice <= first.dice_high
    assert best_per_region([first, second]) == [second]
