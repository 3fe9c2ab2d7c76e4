"""The block against the plain transcription of the paper, and against finite differences."""

from __future__ import annotations

import pytest
import torch
from monai.data.meta_tensor import MetaTensor
from torch import Tensor, nn

from factorizer import (
    NMF,
    FactorizerBlock,
    GlobalMatricize,
    LocalMatricize,
    ResidualMLP,
    ResidualNMF,
    ShiftedWindowMatricize,
    WrappedNMF,
)
from factorizer.nn import blocks, native, tiles
from factorizer.nn.blocks import nmf_blocks, nmf_layers
from factorizer.nn.matricize import HeadCut, MapCut, Matricize
from testkit import textbook
from testkit.small import build_small


@pytest.fixture(params=["native", "tiles"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of the two fast paths of the NMF runs."""
    if request.param == "tiles":
        monkeypatch.setattr(native, "load_library", lambda: None)
    return request.param


def make_block(
    channels: int, matricize: Matricize, nmf: NMF | None = None, *, c_in: int = 0
) -> FactorizerBlock:
    wrapped = WrappedNMF(channels, matricize, nmf or NMF(seed=3), spatial_size=(8, 8, 8))
    return FactorizerBlock(
        c_in or channels,
        channels,
        mixer=ResidualNMF(channels, wrapped),
        mlp=ResidualMLP(channels, 2 * channels),
    )


def pair_parameters(
    block: FactorizerBlock, oracle: textbook.Block
) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """The parameters of both that mean the same."""
    wrapped = block.mixer.wrapped_nmf
    modules = [
        (block.adapter, oracle.adapter),
        (block.mixer.norm, oracle.norm1),
        (block.mlp.norm, oracle.norm2),
        (wrapped.in_proj, oracle.nmf.in_proj),
        (wrapped.out_proj, oracle.nmf.out_proj),
        (block.mlp.mlp[0], oracle.mlp[0]),
        (block.mlp.mlp[3], oracle.mlp[2]),
    ]
    pairs = []
    for ours, theirs in modules:
        pairs += zip(ours.parameters(), theirs.parameters(), strict=True)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(
    ("head_dim", "window", "elements"), [(8, 4, 2**19), (4, 8, 3000), (16, 2, 1000), (2, 4, 7000)]
)
def test_block_agrees_with_the_textbook(
    monkeypatch, dtype, tolerance, head_dim, window, elements
) -> None:
    """Output and every gradient, against the textbook in float64."""
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    block = make_block(16, ShiftedWindowMatricize(head_dim, window), c_in=32).to(dtype)
    oracle = textbook.Block(32, 16, head_dim, window, 2).double()
    pairs = pair_parameters(block, oracle)
    with torch.no_grad():
        for p, q in pairs:
            q.copy_(p.view_as(q))
    nmf = block.mixer.wrapped_nmf.nmf
    _, oracle.nmf.g0 = nmf.initial_factors(1, window**3, dtype=torch.float64)
    skip, up = torch.randn(2, 2, 16, 8, 16, 8, dtype=dtype, requires_grad=True)
    both = torch.cat((skip, up), 1).detach().double().requires_grad_()
    upstream = torch.randn(2, 16, 8, 16, 8, dtype=dtype)
    y, expected = block(skip, up), oracle(both)
    ours = torch.autograd.grad(y, [skip, up, *(p for p, _ in pairs)], upstream)
    theirs = torch.autograd.grad(expected, [both, *(q for _, q in pairs)], upstream.double())
    got_all = (y, torch.cat(ours[:2], 1), *ours[2:])
    for got, wanted in zip(got_all, (expected, *theirs), strict=True):
        assert (got.double() - wanted.view_as(got)).norm() <= tolerance * wanted.norm()


def gradients(module: nn.Module, x: Tensor, upstream: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    y = module(x)
    return [y, *torch.autograd.grad(y, [x, *module.parameters()], upstream)]


def test_a_decoder_block_takes_its_maps_together_or_as_one() -> None:
    block = make_block(8, ShiftedWindowMatricize(4, 4), c_in=24)
    skip, up = torch.randn(1, 8, 8, 8, 8), torch.randn(1, 16, 8, 8, 8)
    torch.testing.assert_close(block(skip, up), block(torch.cat((skip, up), 1)))


@pytest.mark.parametrize(
    "matricize", [GlobalMatricize(2), LocalMatricize(2, 2), ShiftedWindowMatricize(4, 2)]
)
@pytest.mark.parametrize("nmf", [NMF(1, 3), NMF(1, 6), NMF(2, 2), NMF(2, 2, "mu")], ids=repr)
def test_gradcheck_of_a_whole_block(matricize: Matricize, nmf: NMF) -> None:
    block = make_block(4, matricize, nmf, c_in=8).double()
    maps = [torch.randn(1, 4, 2, 4, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    params = list(block.parameters())
    assert torch.autograd.gradcheck(
        lambda *inputs: block(*inputs[:2]), (*maps, *params), fast_mode=True
    )


@pytest.mark.parametrize(
    "matricize", [GlobalMatricize(8), LocalMatricize(8, 4), ShiftedWindowMatricize(8, 4)], ids=repr
)
def test_fast_path_agrees_with_the_equations_written_out(monkeypatch, matricize: Matricize) -> None:
    """Eq. 6 line by line, with matricize, NMF and dematricize as public parts."""
    wrapped = WrappedNMF(16, matricize, NMF(seed=5), spatial_size=(8, 8, 8))
    x = torch.randn(2, 16, 8, 8, 8)
    x1 = wrapped.in_proj(x.movedim(1, -1)).movedim(-1, 1)
    x2 = matricize.matricize(x1)
    x3 = wrapped.nmf(torch.relu(x2))
    x4 = matricize.dematricize(x3, (8, 8, 8))
    expected = wrapped.out_proj(x4.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(wrapped(x), expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(blocks, "is_captured", lambda: True)
    torch.testing.assert_close(wrapped(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", ["hals", "semi", "joint"])
@pytest.mark.parametrize(
    "matricize", [GlobalMatricize(8), LocalMatricize(8, 4), ShiftedWindowMatricize(8, 4)], ids=repr
)
def test_factors_of_a_map_are_those_of_its_windows(matricize: Matricize, solver: str) -> None:
    """F G^T, put back and projected, is what the layer adds to its input."""
    wrapped = WrappedNMF(16, matricize, NMF(2, solver=solver), spatial_size=(8, 8, 8))
    layer = ResidualNMF(16, wrapped)
    x = torch.randn(2, 16, 8, 8, 8)
    f, g, cut = layer.factors(x)
    assert isinstance(cut, MapCut)
    y = wrapped.out_proj(cut.dematricize(f @ g.mT)).movedim(-1, 1) + x
    torch.testing.assert_close(layer(x), y, rtol=1e-4, atol=1e-5)


def test_the_nmf_layers_of_a_network_are_all_of_its_nmfs_along_the_data_path() -> None:
    network = build_small("swin-factorizer")
    assert nmf_layers(network) == [m for m in network.modules() if isinstance(m, NMF)]
    assert [int(layer.seed) for layer in nmf_layers(network)] == [1, 2, 3, 4, 5]
    assert all(network.get_submodule(name) is block for name, block in nmf_blocks(network).items())
    assert nmf_layers(build_small("nnunet")) == []


def test_a_bypassed_layer_passes_relu_of_x() -> None:
    wrapped = WrappedNMF(8, ShiftedWindowMatricize(4, 4), NMF(), spatial_size=(8, 8, 8))
    wrapped.nmf.bypass = True
    x = torch.randn(1, 8, 8, 8, 8)
    rows = x.movedim(1, -1)
    expected = wrapped.out_proj(torch.relu(wrapped.in_proj(rows))).movedim(-1, 1)
    torch.testing.assert_close(wrapped(x), expected)


@pytest.mark.slow
def test_full_rank_reproduces_the_input_of_the_layer() -> None:
    """With rank E and many iterations NMF loses nothing, so the layer acts as if bypassed."""
    wrapped = WrappedNMF(4, LocalMatricize(2, 4), NMF(), spatial_size=(4, 4, 4)).double()
    x = torch.randn(1, 4, 4, 4, 4, dtype=torch.float64)
    wrapped.nmf.rank, wrapped.nmf.num_iters = 2, 3000
    full = wrapped(x)
    wrapped.nmf.bypass = True
    torch.testing.assert_close(full, wrapped(x), rtol=0, atol=1e-3)


def test_zero_input_gives_the_bias_and_small_gradients() -> None:
    wrapped = WrappedNMF(8, ShiftedWindowMatricize(8, 4), NMF(), spatial_size=(8, 8, 8))
    x = torch.zeros(1, 8, 8, 8, 8, requires_grad=True)
    y = wrapped(x)
    torch.testing.assert_close(y, wrapped.out_proj.bias.view(1, -1, 1, 1, 1).expand_as(y))
    y.sum().backward()
    assert x.grad.isfinite().all()
    # after the ReLU, which would hide the gradient of the NMF
    windows = torch.zeros(2, 64, 8, requires_grad=True)
    wrapped.reconstruct(windows, HeadCut(8)).sum().backward()
    assert windows.grad.abs().max() <= 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_trains_without_nan(dtype: torch.dtype) -> None:
    block = make_block(16, ShiftedWindowMatricize(8, 4))
    x = (1e-3 * torch.randn(1, 16, 8, 8, 8)).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        y = block(x)
    y.float().sum().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in block.parameters())
    assert (y.float() - block(x)).norm() < 0.02 * y.float().norm()


@pytest.mark.parametrize("rank", [1, 2])
def test_a_model_cast_to_half_precision_factorizes_in_float32(rank: int) -> None:
    block = make_block(16, ShiftedWindowMatricize(8, 4), NMF(rank))
    x, upstream = torch.randn(2, 1, 16, 8, 8, 8)
    expected = gradients(block, x, upstream)
    got = gradients(block.bfloat16(), x.bfloat16(), upstream.bfloat16())
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == torch.bfloat16
        assert (a.float() - b).norm() < 0.06 * b.norm()


def test_settings_changed_before_the_backward_pass_are_an_error(path: str) -> None:
    """Tiles are computed again with them. The native path keeps its own."""
    block = make_block(8, ShiftedWindowMatricize(8, 4))
    changes = [block.eval]
    if path == "tiles":
        changes.append(lambda: setattr(block.mixer.wrapped_nmf.nmf, "num_iters", 2))
    for change in changes:
        block.train()
        y = block(torch.randn(1, 8, 8, 8, 8))
        change()
        with pytest.raises(
            RuntimeError,
            match=r"settings .* were changed between the forward and the backward pass",
        ):
            y.sum().backward()


def test_backward_inside_autocast_recomputes_in_full_precision() -> None:
    block = make_block(16, ShiftedWindowMatricize(8, 4))
    x = torch.randn(1, 16, 8, 8, 8)
    block(x).sum().backward()
    expected = [p.grad.clone() for p in block.parameters()]
    block.zero_grad()
    y = block(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y.sum().backward()
    for p, grad in zip(block.parameters(), expected, strict=True):
        assert torch.equal(p.grad, grad)


def test_training_after_inference_mode() -> None:
    block = make_block(16, ShiftedWindowMatricize(8, 4))
    x = torch.randn(1, 16, 8, 8, 8, requires_grad=True)
    with torch.inference_mode():
        expected = block(x)
    y = block(x)
    y.sum().backward()
    assert torch.equal(y, expected)
    assert x.grad.abs().sum() > 0


def test_a_width_that_does_not_divide_is_refused() -> None:
    with pytest.raises(
        ValueError, match="12 channels cannot be cut into heads of head_dim 8; use a multiple of 8"
    ):
        WrappedNMF(12, GlobalMatricize(8), NMF(), spatial_size=(8, 8, 8))


@pytest.mark.slow
def test_a_compiled_block_agrees_with_eager_in_output_and_gradient() -> None:
    block = make_block(8, ShiftedWindowMatricize(8, 4))
    x, upstream = torch.randn(2, 1, 8, 8, 8, 8)
    compiled = torch.compile(block, fullgraph=True)
    for got, expected in zip(
        gradients(compiled, x, upstream), gradients(block, x, upstream), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_inference_does_not_overwrite_the_input_of_a_block() -> None:
    block, mlp = make_block(8, ShiftedWindowMatricize(8, 4)), ResidualMLP(8, 16)
    x = torch.randn(1, 8, 8, 8, 8).contiguous(memory_format=torch.channels_last_3d)
    before = x.clone()
    expected = block(x), mlp(x)
    with torch.no_grad():
        assert torch.equal(block(x), expected[0])
        assert torch.equal(mlp(x), expected[1])
    assert torch.equal(x, before)


def test_tensors_of_monai_are_taken_as_they_are() -> None:
    block = make_block(16, ShiftedWindowMatricize(8, 4), c_in=8)
    x = torch.randn(1, 8, 8, 8, 8)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            y = block(MetaTensor(x))
            torch.testing.assert_close(y.as_subclass(Tensor), block(x), rtol=0, atol=0)
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in block.parameters())


def test_weights_that_only_the_forward_pass_had_are_an_error_in_the_backward_pass() -> None:
    """It computes tiles again, and would use other weights."""
    block = make_block(8, ShiftedWindowMatricize(8, 4))
    lent = {name: torch.randn_like(p) for name, p in block.named_parameters()}
    x = torch.randn(1, 8, 8, 8, 8, requires_grad=True)
    y = torch.func.functional_call(block, lent, (x,))
    with pytest.raises(RuntimeError, match="its weights were changed"):
        y.sum().backward()


def test_inference_does_not_overwrite_maps_that_others_hold() -> None:
    block = make_block(16, ShiftedWindowMatricize(8, 4))
    kept: list[Tensor] = []
    block.mixer.register_forward_hook(lambda module, args, y: kept.append(y))
    x = torch.randn(1, 8, 8, 8, 16).movedim(-1, 1)  # in memory as the block has it
    before = x.clone()
    with torch.no_grad():
        block.mlp(x)
        assert torch.equal(x, before)
        y = block(x)
        torch.testing.assert_close(block.mlp(kept[0]), y, rtol=0, atol=0)
