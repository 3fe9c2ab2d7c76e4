"""The U-shape with a stand-in block: sizes, strides, positions, deep supervision, errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorizer import UNet
from factorizer.nn.unet import conv_few_channels


class Stand(nn.Module):
    """A block that remembers what it was made for."""

    def __init__(self, in_channels: int, out_channels: int, size: tuple[int, ...]) -> None:
        super().__init__()
        self.made_for = in_channels, out_channels, size
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[len(size)]
        self.conv = conv(in_channels, out_channels, 1)

    def forward(self, *maps: Tensor) -> Tensor:
        return self.conv(torch.cat(maps, 1))


def make_unet(size: tuple[int, ...] = (16, 16, 16), **options) -> UNet:
    options = {
        "in_channels": 2,
        "out_channels": 3,
        "widths": (4, 8, 16),
        "make_block": Stand,
    } | options
    return UNet(spatial_size=size, **options)


def test_every_block_is_made_for_its_place() -> None:
    model = make_unet((16, 32, 8), depths=(1, 2, 1))
    made = [block.made_for for block in model.modules() if isinstance(block, Stand)]
    assert made == [
        (4, 4, (16, 32, 8)),
        (8, 8, (8, 16, 4)),
        (8, 8, (8, 16, 4)),
        (16, 16, (4, 8, 2)),
        (16, 8, (8, 16, 4)),
        (8, 8, (8, 16, 4)),
        (8, 4, (16, 32, 8)),
    ]


def test_training_gives_a_list_and_evaluation_one_map() -> None:
    model = make_unet(widths=(4, 4, 8, 8, 8))
    x = torch.rand(2, 2, 16, 16, 16)
    logits = model(x)
    assert [tuple(y.shape) for y in logits] == [(2, 3, n, n, n) for n in (16, 8, 4)]
    y = model.eval()(x)
    torch.testing.assert_close(y, logits[0])
    assert y.is_contiguous()
    assert len(make_unet()(x)) == 2  # as many as the decoder has levels
    assert make_unet(deep_supervision=False)(x).shape == (2, 3, 16, 16, 16)
    assert len(make_unet(deep_supervision=False).heads) == 1


def test_strides_per_level_and_axis() -> None:
    model = make_unet((16, 16, 5), strides=[(2, 2, 1), (4, 2, 1)]).eval()
    assert model(torch.rand(1, 2, 16, 8, 5)).shape == (1, 3, 16, 8, 5)
    assert model.position.shape == (1, 16, 2, 4, 5)


def test_two_dimensions() -> None:
    assert make_unet((16, 24)).eval()(torch.rand(1, 2, 16, 24)).shape == (1, 3, 16, 24)


def test_position_embedding_is_added_in_the_bridge_and_resampled_for_other_sizes() -> None:
    model = make_unet((16, 16, 16))
    x = torch.rand(1, 16, 4, 4, 4)
    torch.testing.assert_close(model.add_position(x), x + model.position)
    other = torch.zeros(1, 16, 8, 2, 4)
    expected = F.interpolate(model.position, (8, 2, 4), mode="trilinear", align_corners=False)
    torch.testing.assert_close(model.add_position(other), expected)
    assert make_unet(position_embedding=False).add_position(x) is x
    assert model.eval()(torch.rand(1, 2, 32, 8, 16)).shape == (1, 3, 32, 8, 16)


@pytest.mark.parametrize("channels", [1, 2, 4, 8, 11])
@pytest.mark.parametrize("dims", [2, 3])
def test_the_padded_stem_is_the_convolution(channels: int, dims: int) -> None:
    conv = {2: nn.Conv2d, 3: nn.Conv3d}[dims](channels, 8, 3, padding=1, bias=False)
    x = torch.randn(2, channels, *[6] * dims)
    y = conv_few_channels(x, conv)
    torch.testing.assert_close(y, conv(x))
    assert y.movedim(1, -1).is_contiguous()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"size": (16, 18, 16)},
            "axis W has 18 voxels, not a multiple of total stride 4; pad to 20",
        ),
        ({"size": (16,)}, "give 2 or 3 sizes"),
        ({"widths": (4,)}, "give at least 2"),
        ({"depths": (1, 2)}, "give 3 positive numbers, one per width"),
        ({"strides": [2]}, "give one number, or 2, one per downsampling"),
        ({"strides": [2, (2, 2)]}, "stride is .* give one positive number, or 3, one per axis"),
    ],
)
def test_wrong_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_unet(**options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (1, 2, 16, 16, 130),
            "axis D has 130 voxels, not a multiple of total stride 4; pad to 132",
        ),
        ((1, 3, 16, 16, 16), r"this model takes \(B, 2, H, W, D\)"),
        ((2, 16, 16, 16), r"this model takes \(B, 2, H, W, D\)"),
    ],
)
def test_wrong_input_is_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_unet()(torch.zeros(shape))
