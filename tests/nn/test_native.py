"""The native path of the residual NMF against the tiled one, and what a library must withstand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from factorizer import NMF, LocalMatricize, ResidualNMF, ShiftedWindowMatricize, WrappedNMF
from factorizer.nn import native
from factorizer.nn.matricize import Matricize

needs_library = pytest.mark.skipif(
    native.load_library() is None, reason=f"not built, or {native.SWITCH} is 0"
)


def make_layer(
    channels: int, matricize: Matricize, size: Sequence[int], num_iters: int = 5
) -> ResidualNMF:
    torch.manual_seed(0)
    wrapped = WrappedNMF(channels, matricize, NMF(1, num_iters, seed=3), spatial_size=size)
    layer = ResidualNMF(channels, wrapped)
    nn.init.normal_(layer.norm.weight)
    nn.init.normal_(layer.norm.bias)
    return layer


def results(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and of all parameters."""
    x = x.detach().requires_grad_()
    y = layer(x)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], upstream)]


def in_tiles(monkeypatch: pytest.MonkeyPatch, layer: nn.Module, x: Tensor) -> list[Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(native, "load_library", lambda: None)
        return results(layer, x)


def test_the_library_was_built_where_there_is_a_compiler() -> None:
    if shutil.which("g++") is None or os.environ.get(native.SWITCH) == "0":
        pytest.skip("no compiler, or turned off")
    assert native.load_library() is not None
    assert native.describe().endswith(native.INSTRUCTIONS)


@needs_library
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize(
    ("channels", "head_dim", "window", "size", "num_iters"),
    [
        (16, 8, 4, (8, 16, 8), 5),
        (24, 8, 4, (4, 4, 4), 20),
        (20, 4, (4, 2, 2), (8, 4, 6), 9),  # heads that fill no vector, anisotropic
        (10, 5, 3, (6, 6, 9), 1),  # odd windows, and heads of any size
        (64, 16, 8, (8, 8, 8), 2),
        (6, 1, 2, (2, 4, 2), 5),
        (48, 8, 4, (12, 8), 6),  # 2D
    ],
)
@pytest.mark.parametrize("kind", [LocalMatricize, ShiftedWindowMatricize])
@pytest.mark.parametrize("batch", [1, 3])
def test_it_agrees_with_tiles(
    monkeypatch, channels, head_dim, window, size, num_iters, kind, batch, dtype, tolerance
) -> None:
    layer = make_layer(channels, kind(head_dim, window), size, num_iters).to(dtype)
    x = torch.randn(batch, channels, *size, dtype=dtype)
    expected = in_tiles(monkeypatch, layer.double(), x.double())
    for got, wanted in zip(results(layer.to(dtype), x), expected, strict=True):
        assert got.dtype == dtype
        assert (got.double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.slow
@needs_library
@pytest.mark.parametrize("head_dim", [4, 3])
def test_gradcheck(head_dim: int) -> None:
    layer = make_layer(12, ShiftedWindowMatricize(head_dim, 2), (4, 2, 4)).double()
    x = torch.randn(1, 12, 4, 2, 4, dtype=torch.float64, requires_grad=True)
    parameters = list(layer.parameters())
    assert torch.autograd.gradcheck(lambda *inputs: layer(inputs[0]), (x, *parameters))


@needs_library
def test_it_really_runs(monkeypatch) -> None:
    called = []
    monkeypatch.setattr(native, "call", lambda name, *_: called.append(name))
    layer, x = make_layer(8, ShiftedWindowMatricize(8, 4), (8, 8, 8)), torch.randn(1, 8, 8, 8, 8)
    results(layer, x)
    assert called == ["forward", "backward"]


@needs_library
@pytest.mark.parametrize(
    "change",
    [
        lambda layer: setattr(layer.wrapped_nmf.nmf, "rank", 2),
        lambda layer: setattr(layer.wrapped_nmf.nmf, "bypass", True),
        lambda layer: setattr(layer.wrapped_nmf.nmf, "solver", "semi"),
        lambda layer: setattr(layer.wrapped_nmf.dropout, "p", 0.5),
        lambda layer: setattr(layer, "norm", nn.RMSNorm(8)),
        lambda layer: layer.wrapped_nmf.in_proj.register_forward_hook(lambda *_: None),
        lambda layer: nn.utils.parametrizations.weight_norm(layer.wrapped_nmf.out_proj),
    ],
    ids=["rank", "bypass", "solver", "dropout", "norm", "hook", "parametrization"],
)
def test_what_it_does_not_compute_goes_another_way(monkeypatch, change) -> None:
    layer, x = make_layer(8, ShiftedWindowMatricize(8, 4), (8, 8, 8)), torch.randn(1, 8, 8, 8, 8)
    monkeypatch.setattr(native, "residual_nmf", lambda *_, **__: pytest.fail("was called"))
    change(layer)
    assert layer(x).shape == x.shape


@needs_library
@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-20, 1e15])
def test_zero_denormal_and_large_maps_stay_finite(scale: float) -> None:
    layer = make_layer(16, ShiftedWindowMatricize(8, 4), (8, 8, 8))
    nn.init.zeros_(layer.norm.bias)
    nn.init.constant_(layer.norm.weight, scale)
    for tensor in results(layer, torch.randn(1, 16, 8, 8, 8)):
        assert tensor.isfinite().all()


@needs_library
def test_nan_stays_in_its_windows() -> None:
    layer = make_layer(8, LocalMatricize(8, 4), (8, 8, 8))
    x = torch.randn(1, 8, 8, 8, 8)
    expected = layer(x)
    x[0, 3, 1, 2, 3] = torch.nan
    y = layer(x)
    assert y[0, :, :4, :4, :4].isnan().all()
    torch.testing.assert_close(y[:, :, 4:], expected[:, :, 4:])


@needs_library
def test_any_number_of_threads_gives_the_same_bits() -> None:
    layer = make_layer(16, ShiftedWindowMatricize(8, 4), (32, 16, 16))
    x = torch.randn(2, 16, 32, 16, 16)
    cuts = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            z = torch.sin(torch.arange(x.numel()).float()).view(2, 32, 16, 16, 16)
            settings = native.Settings(1e-5, 8, 5, layer.wrapped_nmf.cut_of(x).grids)
            g0, weight = (
                torch.rand(64, 1, generator=torch.Generator().manual_seed(0)),
                torch.eye(16),
            )
            y, dz, dweight = torch.zeros_like(z), torch.zeros_like(z), torch.zeros(16, 16)
            cut = settings.cut_of(z)
            native.call("forward", cut, z, g0, weight, torch.ones(16), y)
            native.call("backward", cut, z, g0, weight, y, dz, dweight)
            cuts.append((y, dz, dweight))
    finally:
        torch.set_num_threads(before)
    for other in cuts[1:]:
        assert all(torch.equal(a, b) for a, b in zip(cuts[0], other, strict=True))


@needs_library
def test_maps_of_any_layout_are_taken() -> None:
    layer = make_layer(8, ShiftedWindowMatricize(8, 4), (8, 8, 8))
    x = torch.randn(2, 8, 8, 8, 16)[..., ::2]
    torch.testing.assert_close(layer(x), layer(x.contiguous()), rtol=0, atol=0)
    last = x.contiguous(memory_format=torch.channels_last_3d)
    torch.testing.assert_close(layer(last), layer(x), rtol=0, atol=0)


@needs_library
def test_two_python_threads_at_once() -> None:
    layer = make_layer(16, ShiftedWindowMatricize(8, 4), (16, 16, 16))
    maps = torch.randn(4, 1, 16, 16, 16, 16)
    expected = [layer(x) for x in maps]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(layer, maps))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


PROGRAM = """
import torch
from factorizer import NMF, ResidualNMF, ShiftedWindowMatricize, WrappedNMF
from factorizer.nn import native
torch.manual_seed(0)
wrapped = WrappedNMF(16, ShiftedWindowMatricize(8, 4), NMF(), spatial_size=(16, 16, 16))
layer, x = ResidualNMF(16, wrapped), torch.randn(2, 16, 16, 16, 16, requires_grad=True)
y = layer(x)
y.square().sum().backward()
print(native.describe(), y.double().sum().item(), x.grad.double().abs().sum().item())
"""


def run_with(value: str) -> tuple[str, float, float]:
    """What the program says under a value of the switch."""
    environment = os.environ | {native.SWITCH: value}
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    ).stdout
    *words, first, second = output.split()
    return " ".join(words), float(first), float(second)


@needs_library
@pytest.mark.slow
def test_every_instruction_set_and_none_give_the_same() -> None:
    _, *expected = run_with("0")
    for name in native.INSTRUCTIONS:
        said, *found = run_with(name)
        assert said.startswith("in use, for ")
        assert found == pytest.approx(expected, rel=1e-5)
    assert run_with("baseline")[0] == "in use, for baseline"
    assert run_with("0")[0] == ""


FORKED = """
import os, torch
from factorizer import NMF, ResidualNMF, ShiftedWindowMatricize, WrappedNMF
torch.set_num_threads(2)
wrapped = WrappedNMF(16, ShiftedWindowMatricize(8, 4), NMF(), spatial_size=(16, 16, 16))
layer, x = ResidualNMF(16, wrapped), torch.randn(2, 16, 16, 16, 16)
layer(x)
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    os._exit(int(not layer(x).isfinite().all()))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@needs_library
@pytest.mark.slow
def test_a_forked_process_with_one_thread_can_use_it() -> None:
    """As the workers that prepare patches could."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, timeout=120).returncode == 0
