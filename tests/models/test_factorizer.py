"""The three Factorizers as wholes: counts, options, sizes, checkpoints, export."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from factorizer import NMF, WrappedNMF, build_model
from testkit import textbook

NAMES = ("global-factorizer", "local-factorizer", "swin-factorizer")
BRATS = {"in_channels": 4, "out_channels": 3, "spatial_size": (128, 128, 128)}
ISLES22 = {
    "in_channels": 2,
    "out_channels": 1,
    "spatial_size": (64, 64, 64),
    "head_dim": 4,
    "mlp_ratio": 4,
}
SMALL = {"in_channels": 2, "out_channels": 3, "spatial_size": (16, 16, 16), "widths": (8, 16, 32)}


def small(name: str = "swin-factorizer", **options) -> nn.Module:
    torch.manual_seed(0)
    if not name.startswith("global"):
        options = {"window": 4} | options
    return build_model(name, **(SMALL | options))


def layers(model: nn.Module, kind: type) -> list:
    return [module for module in model.modules() if isinstance(module, kind)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("options", "count"), [(BRATS, 5_855_241), (ISLES22, 7_371_523)])
def test_parameter_counts_are_the_papers(name: str, options: dict, count: int) -> None:
    window = {} if name.startswith("global") else {"window": 8 if options is BRATS else 4}
    with torch.device("meta"):
        model = build_model(name, **options, **window)
    assert sum(p.numel() for p in model.parameters()) == count


def test_runs_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = small()
        logits = model(torch.rand(1, 2, 16, 16, 16))
    assert logits[0].shape == (1, 3, 16, 16, 16)


def test_the_whole_network_agrees_with_the_textbook() -> None:
    torch.manual_seed(0)
    ours = build_model(
        "swin-factorizer",
        in_channels=2,
        out_channels=1,
        spatial_size=(32,) * 3,
        window=4,
        head_dim=8,
    )
    oracle = textbook.SwinFactorizer(2, 1, 32, 8, 4, 2)
    blocks = [stage[0] for stage in (*ours.encoder, ours.bridge)]
    pairs = [(ours.stem, oracle.stem), *zip(ours.down, oracle.down, strict=True)]
    pairs += zip(reversed(ours.up), oracle.up, strict=True)
    pairs += zip(ours.heads, oracle.heads, strict=True)
    decoder = [stage[0] for stage in reversed(ours.decoder)]
    for block, theirs in zip(blocks + decoder, [*oracle.encoder, *oracle.decoder], strict=True):
        wrapped, mlp = block.mixer.wrapped_nmf, block.mlp.mlp
        pairs += [
            (block.mixer.norm, theirs.norm1),
            (block.mlp.norm, theirs.norm2),
            (block.adapter, theirs.adapter),
        ]
        pairs += [(wrapped.in_proj, theirs.nmf.in_proj), (wrapped.out_proj, theirs.nmf.out_proj)]
        pairs += [(mlp[0], theirs.mlp[0]), (mlp[3], theirs.mlp[2])]
        theirs.nmf.g0 = wrapped.nmf.initial_factors(1, theirs.nmf.window**3, dtype=torch.float32)[1]
    with torch.no_grad():
        oracle.position.copy_(ours.position)
        for mine, theirs in pairs:
            for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
                q.copy_(p.view_as(q))
        x = torch.randn(1, 2, 32, 32, 32)
        for got, expected in zip(ours(x), oracle(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(48, 48, 48), (80, 16, 16), (96, 16, 16), (40, 56, 40)])
@pytest.mark.parametrize("name", NAMES)
def test_any_multiple_of_the_total_stride_works(name: str, size: tuple[int, ...]) -> None:
    model = build_model(
        name, in_channels=1, out_channels=2, spatial_size=size, widths=(8, 8, 8, 8)
    ).eval()
    with torch.no_grad():
        assert model(torch.rand(1, 1, *size)).shape == (1, 2, *size)
        assert model(torch.rand(2, 1, 8, 24, 16)).shape == (2, 2, 8, 24, 16)


def test_windows_are_fitted_to_each_level_and_shown() -> None:
    model = build_model(
        "swin-factorizer", in_channels=1, out_channels=1, spatial_size=(96, 48, 80), widths=(8,) * 5
    )
    shown = [layer.extra_repr() for layer in layers(model, WrappedNMF)][:5]
    for text, window, size in zip(
        shown,
        ["(8, 8, 8)", "(8, 8, 8)", "(8, 6, 10)", "(6, 6, 10)", "(6, 3, 5)"],
        ["96 x 48 x 80", "48 x 24 x 40", "24 x 12 x 20", "12 x 6 x 10", "6 x 3 x 5"],
        strict=True,
    ):
        assert f"window={window}) on {size}" in text


@pytest.mark.parametrize("options", [BRATS | {"window": 8}, ISLES22 | {"window": 4}])
def test_the_papers_sizes_get_exactly_the_papers_window(options: dict) -> None:
    with torch.device("meta"):
        model = build_model("swin-factorizer", **options)
    for layer in layers(model, WrappedNMF):
        assert layer.matricize.fitted(layer.spatial_size).window == (options["window"],) * 3


@pytest.mark.parametrize("name", NAMES)
def test_two_dimensions(name: str) -> None:
    model = small(name, spatial_size=(32, 16)).train()
    logits = model(torch.rand(1, 2, 32, 16))
    assert [tuple(y.shape) for y in logits] == [(1, 3, 32, 16), (1, 3, 16, 8)]


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    model = small(name).train()
    sum(y.square().mean() for y in model(torch.randn(2, 2, 16, 16, 16))).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


def test_sub_blocks_can_be_left_out() -> None:
    whole, no_nmf, no_mlp = small(), small(mixer="none"), small(mlp_ratio=0)
    assert not layers(no_nmf, NMF)
    assert len(layers(whole, NMF)) == len(layers(no_mlp, NMF)) == 5
    counts = [sum(p.numel() for p in m.parameters()) for m in (whole, no_nmf, no_mlp)]
    assert counts[0] > max(counts[1:])
    for model in (no_nmf, no_mlp):
        assert model.eval()(torch.rand(1, 2, 16, 16, 16)).shape == (1, 3, 16, 16, 16)


def test_dropout_reaches_every_layer_and_is_off_by_default() -> None:
    # in each block one after the out-projection and two in the MLP; one after the position
    # embedding
    assert [layer.p for layer in layers(small(), nn.Dropout)] == [0.0] * (5 * 3 + 1)
    assert [layer.p for layer in layers(small(dropout=0.1), nn.Dropout)] == [0.1] * (5 * 3 + 1)
    model, x = small(dropout=0.5), torch.rand(1, 2, 16, 16, 16)
    assert not torch.equal(model.train()(x)[0], model(x)[0])
    assert torch.equal(model.eval()(x), model(x))


def test_options_reach_every_nmf_layer_and_layers_have_their_own_seeds() -> None:
    nmfs = layers(small(rank=2, num_iters=3, solver="mu"), NMF)
    assert {(n.rank, n.num_iters, n.solver) for n in nmfs} == {(2, 3, "mu")}
    assert [int(n.seed) for n in nmfs] == [1, 2, 3, 4, 5]
    assert not {int(n.seed) for n in layers(small(seed=1), NMF)} & {int(n.seed) for n in nmfs}


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_restores_the_outputs_bit_for_bit(name: str) -> None:
    model, x = small(name, seed=3).eval(), torch.rand(1, 2, 16, 16, 16)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = build_model(
        name, **SMALL, **({} if name.startswith("global") else {"window": 4})
    ).eval()
    assert not torch.equal(other(x), model(x))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in NAMES),
        *(("swin-factorizer", {"rank": 2, "num_iters": 2, "solver": s}) for s in ("hals", "mu")),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:.*:torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning"
)
def test_exported_and_traced_models_agree_with_eager(name: str, options: dict) -> None:
    model, x = small(name, **options).eval(), torch.rand(1, 2, 16, 16, 16)
    with torch.no_grad():
        expected = model(x)
        exported = torch.export.export(model, (x,)).module()
        torch.testing.assert_close(exported(x), expected, rtol=1e-4, atol=1e-4)
        traced = torch.jit.trace(model, x)
        file = io.BytesIO()
        torch.jit.save(traced, file)
        file.seek(0)
        torch.testing.assert_close(torch.jit.load(file)(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_compiled_model_agrees_with_eager() -> None:
    model, x = small(widths=(8, 16)).eval(), torch.rand(1, 2, 16, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(
            torch.compile(model, fullgraph=True)(x), model(x), rtol=1e-4, atol=1e-4
        )


def test_a_misspelt_name_or_option_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(
        ValueError, match="no system is named 'swin-factoriser'; did you mean 'swin-factorizer'"
    ):
        build_model("swin-factoriser", **SMALL)
    with pytest.raises(TypeError, match="has no option 'drop_out'; did you mean 'dropout'"):
        build_model("swin-factorizer", drop_out=0.1, **SMALL)
    with pytest.raises(TypeError, match="has no option 'matricize'"):
        build_model("swin-factorizer", matricize="global", **SMALL)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("global-factorizer", {"window": 4}, "global-factorizer has no option 'window'"),
        ("swin-factorizer", {"mixer": "attention"}, "choose 'nmf' or 'none'"),
        ("swin-factorizer", {"head_dim": 5}, "cannot be cut into heads of head_dim 5"),
        ("swin-factorizer", {"solver": "als"}, "choose one of hals, mu"),
        ("swin-factorizer", {"window": (4, 4)}, "give one positive number, or 3"),
        ("swin-factorizer", {"spatial_size": (16, 16, 18)}, "axis D has 18 voxels"),
        ("swin-factorizer", {"spatial_size": 16}, "spatial_size is 16; give one size per axis"),
    ],
)
def test_wrong_options_are_refused_at_construction(name: str, option: dict, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        build_model(name, **(SMALL | option))
