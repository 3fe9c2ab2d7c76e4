"""The Conv-Factorizer: its wiring, its sizes, and what every Factorizer can do."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from factorizer import ResidualNMF, build_model
from factorizer.models.conv_factorizer import ConvFactorizerBlock, ResidualConv
from factorizer.nn.blocks import nmf_blocks, nmf_layers
from testkit.small import build_small

NAME = "conv-factorizer"


def small(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return build_small(NAME, **options)


def draw_weights(module: nn.Module) -> None:
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)


def test_a_residual_convolution_is_normalized_over_space_and_added_before_the_activation() -> None:
    torch.manual_seed(0)
    layer = ResidualConv(8, dims=3, groups=4).double()
    draw_weights(layer)
    x = torch.randn(2, 8, 4, 5, 6, dtype=torch.float64)
    y = F.conv3d(x, layer.conv.weight, padding=1)
    groups = y.view(2, 4, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    scaled = centred / (groups.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    shape = (1, -1, 1, 1, 1)
    y = scaled.view_as(y) * layer.norm.weight.view(shape) + layer.norm.bias.view(shape) + x
    torch.testing.assert_close(layer(x), torch.where(y > 0, y, 0.01 * y))


def test_a_block_is_an_adapter_and_an_nmf_between_two_convolutions() -> None:
    block = small().decoder[0][0]
    assert isinstance(block, ConvFactorizerBlock)
    assert isinstance(block.nmf, ResidualNMF)
    skip, up = torch.randn(2, 1, 16, 8, 8, 8).unbind()
    x = F.conv3d(torch.cat((skip, up), 1), block.adapter.proj.weight[..., None, None, None])
    with torch.no_grad():
        expected = block.after(block.nmf(block.before(x)))
        torch.testing.assert_close(block(skip, up), expected)


def test_convolutions_in_groups_are_mixed_before_the_norm() -> None:
    torch.manual_seed(0)
    layer = ResidualConv(8, dims=2, groups=2, conv_groups=4).double()
    x = torch.randn(2, 8, 5, 6, dtype=torch.float64)
    y = F.conv2d(F.conv2d(x, layer.conv.weight, padding=1, groups=4), layer.mix.weight)
    y = F.group_norm(y, 2, layer.norm.weight, layer.norm.bias)
    torch.testing.assert_close(layer(x), F.leaky_relu(y + x, 0.01))


@pytest.mark.parametrize("strides", [2, [2, [2, 2, 1]]])
def test_the_finest_level_has_one_convolution_and_the_bridge_works_in_groups(strides) -> None:
    model = small(widths=(16, 16, 16), depths=(1, 2, 1), strides=strides)
    blocks = [block for block in model.modules() if isinstance(block, ConvFactorizerBlock)]
    convs = [len([m for m in block.modules() if isinstance(m, ResidualConv)]) for block in blocks]
    assert convs == [1, 2, 2, 2, 2, 2, 1]  # encoder, bridge, decoder
    groups = [block.before.conv.groups for block in blocks]
    assert groups == [1, 1, 1, 8, 1, 1, 1]


def test_the_network_has_an_nmf_layer_in_each_block_with_factors_of_its_own() -> None:
    seeds = [int(layer.seed) for layer in nmf_layers(small(seed=3))]
    assert seeds == [3001, 3002, 3003, 3004, 3005]


def test_without_nmf_the_convolutions_are_left() -> None:
    names = {name for name, _ in small(mixer="none").named_parameters()}
    kept = {name for name, _ in small().named_parameters() if ".nmf." not in name}
    assert names == kept
    assert nmf_blocks(small(mixer="none")) == {}


def test_half_the_widths_have_at_most_four_million_parameters() -> None:
    with torch.device("meta"):
        model = build_model(
            NAME,
            in_channels=1,
            out_channels=2,
            spatial_size=(32, 64, 32),
            widths=(16, 32, 64, 128, 256),
            window=4,
        )
    assert sum(weight.numel() for weight in model.parameters()) < 4_000_000


@pytest.mark.parametrize("option", ["mixer", "groups", "head_dim"])
def test_impossible_options_are_refused(option: str) -> None:
    wrong: dict[str, object] = {"mixer": "attention", "groups": 5, "head_dim": 5}
    with pytest.raises(ValueError, match=r"choose|multiple|divide"):
        small(**{option: wrong[option]})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_it_can_be_traced_and_exported_to_the_same_result() -> None:
    model, x = small().eval(), torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        expected = model(x)
        traced = torch.jit.trace(copy.deepcopy(model), x)
        torch.testing.assert_close(traced(x), expected, rtol=1e-4, atol=1e-5)
        exported = torch.export.export(copy.deepcopy(model), (x,)).module()
        torch.testing.assert_close(exported(x), expected, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_carries_the_initial_factors() -> None:
    first, second, x = small(seed=1), small(seed=2), torch.randn(1, 2, 16, 16, 16)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        assert torch.equal(first.eval()(x), second.eval()(x))


def test_turning_a_layer_off_changes_the_result() -> None:
    model, x = small().eval(), torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        before = model(x)
        nmf_layers(model)[0].bypass = True
        assert not torch.allclose(model(x), before)


@pytest.mark.slow
def test_two_dimensions_and_thick_slices() -> None:
    flat = small(spatial_size=(32, 16), strides=2)
    assert flat.eval()(torch.randn(1, 2, 32, 16)).shape == (1, 1, 32, 16)
    thick = small(spatial_size=(16, 16, 5), strides=[[2, 2, 1], [2, 2, 1]])
    assert thick.eval()(torch.randn(1, 2, 16, 16, 5)).shape == (1, 1, 16, 16, 5)
