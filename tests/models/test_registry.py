"""Contracts that every registered system keeps."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import get_args, get_overloads, get_type_hints

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer.models import options
from factorizer.models.nnunet import ConvBlock, ResidualConvBlock
from factorizer.models.registry import SYSTEMS, build_model, builder_of, options_of
from factorizer.nn.unet import UNet
from factorizer.training.optimizer import make_optimizer
from factorizer.training.trainer import let_threads_finish
from testkit.small import SMALL, build_small


def as_list(outputs: Tensor | list[Tensor]) -> list[Tensor]:
    return outputs if isinstance(outputs, list) else [outputs]


def loss_of(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over all resolutions."""
    losses = [
        F.binary_cross_entropy_with_logits(y, F.interpolate(target, y.shape[2:]))
        for y in as_list(model(x))
    ]
    return torch.stack(losses).mean()


def batch_of(name: str, size: int = 1) -> tuple[Tensor, Tensor]:
    """An image and a target that follows from it: a blob, bright in the first channel."""
    spatial = SMALL[name]["spatial_size"]
    axes = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in spatial), indexing="ij")
    blob = (sum(axis**2 for axis in axes) < 0.5).float().expand(size, 1, *spatial)
    return torch.randn(size, 2, *spatial) + torch.cat((blob, 0 * blob), 1), blob


def unused_of(name: str) -> tuple[str, ...]:
    return getattr(import_module(SYSTEMS[name].builder.split(":")[0]), "UNUSED", ())


def test_the_papers_ten_systems_and_ours_are_registered_and_have_a_small_version() -> None:
    assert list(SYSTEMS) == list(SMALL)
    assert len(SYSTEMS) == 11


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_logits_have_the_size_of_the_image_and_any_sign(name: str) -> None:
    x, _ = batch_of(name)
    model = build_small(name)
    with torch.no_grad():
        y = model.eval()(x)
        assert torch.equal(y, model(x))  # eval is deterministic
    assert y.shape == (1, 1, *x.shape[2:])
    assert y.min() < 0 or y.max() > 1  # not probabilities
    finest, *coarser = as_list(model.train()(x))
    assert finest.shape == y.shape
    for level, z in enumerate(coarser, start=1):
        assert z.shape[2:] == tuple(n // 2**level for n in x.shape[2:])


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_parameter_except_those_listed_gets_a_finite_gradient(name: str) -> None:
    model = build_small(name).train()
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen == set(unused_of(name))
    model.requires_grad_(True)  # so that only unused parameters stay without a gradient
    loss_of(model, *batch_of(name, size=2)).backward()
    assert {n for n, p in model.named_parameters() if p.grad is None} == frozen
    for n, p in model.named_parameters():
        if p.grad is not None:
            assert p.grad.isfinite().all(), n


def test_only_transbts_and_unetr_have_unused_parameters() -> None:
    assert [name for name in SYSTEMS if unused_of(name)] == ["transbts", "unetr"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_checkpoint_restores_the_network_bit_for_bit(name: str) -> None:
    x, target = batch_of(name)
    first, second = build_small(name), build_small(name)
    loss_of(first.train(), x, target)  # moves running statistics, where there are any
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        assert torch.equal(first.eval()(x), second.eval()(x))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer_name", ["adamw", "muon"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_tiny_batch_is_overfitted(name: str, optimizer_name: str) -> None:
    x, target = batch_of(name)
    model = build_small(name).train()
    optimizer = make_optimizer(optimizer_name, model, learning_rate=1e-2, weight_decay=1e-2)
    losses = []
    for _ in range(15):
        loss = loss_of(model, x, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-3:]) < losses[0] / 2


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_misspelt_option_is_named(name: str) -> None:
    option = options_of(name)[0]
    with pytest.raises(
        TypeError, match=f"{name} has no option '{option}s'; did you mean '{option}'"
    ):
        build_small(name, **{f"{option}s": 1})


@pytest.mark.parametrize("name", ["transbts", "unetr", "swin-unetr", "nnformer"])
def test_a_size_that_does_not_divide_is_refused_with_the_next_that_does(name: str) -> None:
    with pytest.raises(ValueError, match=r"axis H has 33 voxels, not a multiple of .*; pad to"):
        build_small(name, spatial_size=(33, 32, 32))


@pytest.mark.parametrize("name", ["transbts", "nnformer"])
def test_systems_without_a_2d_form_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="no 2D form"):
        build_small(name, spatial_size=(32, 32))


@pytest.mark.parametrize(
    "name", ["nnunet", "res-unet", "performer", "unetr", "swin-unetr", "conv-factorizer"]
)
def test_the_other_systems_have_a_2d_form(name: str) -> None:
    sizes = {"unetr": (32, 32), "swin-unetr": (64, 64)}
    size = sizes.get(name, (16, 16))
    with torch.no_grad():
        y = build_small(name, spatial_size=size).eval()(torch.randn(1, 2, *size))
    assert y.shape == (1, 1, *size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["nnunet", "performer", "transbts", "swin-unetr", "nnformer", "conv-factorizer"]
)
def test_another_size_than_at_construction_works(name: str) -> None:
    size = (64, 64, 32) if name in ("swin-unetr", "nnformer") else (32, 16, 16)
    with torch.no_grad():
        y = build_small(name).eval()(torch.randn(1, 2, *size))
    assert y.shape == (1, 1, *size)


def test_swin_unetr_refuses_a_size_it_cannot_normalize() -> None:
    with pytest.raises(ValueError, match="leaves one voxel at the coarsest level"):
        build_small("swin-unetr", spatial_size=(32, 32, 32))


def test_performer_without_mlp_and_with_dropout() -> None:
    bare = build_small("performer", mlp_ratio=0)
    assert not any("mlp" in name for name, _ in bare.named_parameters())
    modules = build_small("performer", dropout=0.1).modules()
    rates = [module.p for module in modules if isinstance(module, nn.Dropout)]
    # one in the attention and two in the MLP of five blocks; two adapters; the position embedding
    assert rates == [0.1] * (5 * 3 + 2 + 1)
    with pytest.raises(ValueError, match="num_features is 0"):
        build_small("performer", num_features=0)


def test_unetr_says_that_it_takes_one_size_only() -> None:
    with pytest.raises(ValueError, match=r"built for \(B, 2, 32, 32, 32\) and takes no other"):
        build_small("unetr")(torch.randn(1, 2, 48, 32, 32))


def test_without_deep_supervision_there_is_one_map() -> None:
    for name in ("nnunet", "nnformer"):
        x, _ = batch_of(name)
        assert isinstance(build_small(name, deep_supervision=False).train()(x), Tensor)


def test_the_types_of_options_are_those_of_the_builders() -> None:
    """Every system has its own signature for type checkers: that of its builder."""
    names = {**vars(options), "nn": nn, "UNet": UNet}
    typed: dict[str, tuple[type, type]] = {}
    for signature in get_overloads(build_model):
        hints = get_type_hints(signature, localns=names)
        for name in get_args(hints["name"]):
            typed[name] = (get_args(hints["options"])[0], hints["return"])
    assert set(typed) == set(SYSTEMS)
    for name, (taken, returned) in typed.items():
        builder = get_type_hints(builder_of(name))
        assert get_type_hints(taken) == {option: builder[option] for option in options_of(name)}, (
            name
        )
        assert issubclass(builder["return"], returned), name


def test_an_unknown_system_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'nnunet'"):
        build_model("nnunett", in_channels=1, out_channels=1, spatial_size=(16, 16))


def train_distributed(rank: int, folder: str) -> None:
    """Two steps of every system in one of two processes; the gradients must be the same in both."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for name in SYSTEMS:
        torch.manual_seed(rank)
        model = nn.parallel.DistributedDataParallel(build_small(name).train())
        for _ in range(2):  # the second step would find parameters that never got a gradient
            model.zero_grad()
            loss_of(model, *batch_of(name)).backward()
        total = torch.stack([p.grad.sum() for p in model.parameters() if p.grad is not None])
        both = [torch.empty_like(total) for _ in range(2)]
        dist.all_gather(both, total)
        assert torch.equal(*both), name
    Path(folder, f"done{rank}").touch()
    dist.destroy_process_group()
    let_threads_finish()


@pytest.mark.slow
def test_distributed_training_runs_with_every_system(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(train_distributed, (str(tmp_path),), nprocs=2)
    assert {path.name for path in tmp_path.glob("done*")} == {"done0", "done1"}


@pytest.mark.parametrize("block", [ConvBlock, ResidualConvBlock])
@pytest.mark.parametrize("in_channels", [8, 5])
def test_blocks_of_the_convolutional_networks_are_wired_as_published(
    block: type[ConvBlock], in_channels: int
) -> None:
    """Convolution, normalization, activation, twice. The input is added before the last one."""
    torch.manual_seed(0)
    module = block(in_channels, 8, dims=3, groups=4).double()
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.5)
    x = torch.randn(1, in_channels, 4, 5, 6, dtype=torch.float64)
    y = F.conv3d(x, module.conv1.weight, module.conv1.bias, padding=1)
    y = F.leaky_relu(F.group_norm(y, 4, module.norm1.weight, module.norm1.bias), 0.01)
    y = F.conv3d(y, module.conv2.weight, module.conv2.bias, padding=1)
    y = F.group_norm(y, 4, module.norm2.weight, module.norm2.bias)
    if block is ResidualConvBlock:
        y = y + (x if in_channels == 8 else F.conv3d(x, module.shortcut.weight))
    torch.testing.assert_close(module(x), F.leaky_relu(y, 0.01))
