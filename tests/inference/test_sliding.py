"""Patches over a whole image, against MONAI's sliding window."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from monai.data.utils import compute_importance_map
from monai.inferers.utils import sliding_window_inference
from torch import Tensor, nn

from factorizer.inference.sliding import Sliding, average, importance, mirror


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv3d(2, 6, 3, padding=1),
        nn.InstanceNorm3d(6),
        nn.GELU(),
        nn.Conv3d(6, 3, 3, padding=1),
    )
    return nn.Sequential(*layers).eval()  # what it says of a voxel depends on the patch


SLIDING = Sliding((8, 12, 8), 0.5)


@pytest.mark.parametrize("blending", ["constant", "gaussian"])
@pytest.mark.parametrize(
    "size", [(8, 12, 8), (21, 30, 17), (40, 13, 9), (5, 30, 8), (3, 4, 5), (16, 12, 8)]
)
def test_it_is_monais(network: nn.Module, size: tuple[int, ...], blending: str) -> None:
    image = torch.randn(2, *size)
    with torch.no_grad():
        expected = sliding_window_inference(
            image[None], (8, 12, 8), 1, network, overlap=0.5, mode=blending
        )[0]
    steps: list[int] = []
    sliding = replace(SLIDING, blending=blending)
    ours = sliding.probabilities(network, image, lambda: steps.append(1))
    assert ours.shape == (3, *size)
    torch.testing.assert_close(ours, expected.sigmoid(), rtol=0, atol=1e-6)
    assert len(steps) == sliding.count(size)


@pytest.mark.parametrize("blending", ["constant", "gaussian"])
@pytest.mark.parametrize("patch_size", [(16, 16, 16), (9, 64, 31), (1, 2, 3), (7, 128)])
def test_weights_inside_a_patch_are_monais(patch_size: tuple[int, ...], blending: str) -> None:
    expected = compute_importance_map(patch_size, mode=blending, sigma_scale=0.125)
    assert torch.equal(importance(patch_size, blending), torch.as_tensor(expected))


def test_an_image_of_the_size_of_a_patch_is_a_plain_forward_pass(network: nn.Module) -> None:
    image = torch.randn(2, 8, 12, 8)
    with torch.no_grad():
        expected = network(image[None])[0].sigmoid()
    torch.testing.assert_close(SLIDING.probabilities(network, image), expected)


def test_neither_batches_nor_threads_matter(network: nn.Module) -> None:
    image = torch.randn(2, 20, 30, 19)
    one = replace(SLIDING, blending="gaussian").probabilities(network, image)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        for batch_size in (2, 5, 100):
            other = replace(SLIDING, blending="gaussian", batch_size=batch_size).probabilities(
                network, image
            )
            assert (one - other).abs().max() < 1e-5
            differ = (one >= 0.5) != (other >= 0.5)
            assert ((one - 0.5).abs()[differ] < 1e-5).all()
    finally:
        torch.set_num_threads(threads)


def test_rows_are_given_out_as_soon_as_they_are_done(network: nn.Module) -> None:
    image, seen = torch.randn(2, 40, 12, 8), []
    for slab in SLIDING.slabs(network, image, lambda: seen.append("patch")):
        seen.append(slab.shape[1])
    assert [item for item in seen if item != "patch"] == [4] * 8 + [8]
    assert seen[:2] == ["patch", 4]  # after the first layer of patches


def test_a_2d_image() -> None:
    image = torch.randn(3, 21, 10)
    network = nn.Conv2d(3, 1, 1)
    with torch.no_grad():
        expected = network(image[None])[0].sigmoid()
    ours = Sliding((8, 16), 0.25, "gaussian").probabilities(network, image)
    torch.testing.assert_close(ours, expected)


def test_mirrors_and_ensembles_average_logits() -> None:
    def left(x: Tensor) -> Tensor:
        return x.cumsum(2)  # depends on the direction

    x = torch.randn(1, 1, 4, 4)
    both = (left(x) + left(x.flip(2)).flip(2)) / 2
    torch.testing.assert_close(mirror(left, (0, 1))(x), both)
    torch.testing.assert_close(mirror(left, (0,))(x), both)
    torch.testing.assert_close(mirror(left, (1,))(x), left(x))
    torch.testing.assert_close(average([left, lambda x: 3 * x])(x), (left(x) + 3 * x) / 2)
    assert average([left]) is left
