"""The seven changes of appendix A: how often, how much, and what they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from factorizer.config import Augmentation, Flip
from factorizer.data.augment import Changes, apply_augmentation, draw_augmentation

DRAWS = 10_000


@pytest.fixture(scope="module")
def draws() -> list[Changes]:
    generator = np.random.default_rng(0)
    return [draw_augmentation(Augmentation(), channels=2, dims=3, generator=generator) for _ in range(DRAWS)]


def assert_uniform(values: list[float], low: float, high: float, share: float, total: int = DRAWS) -> None:
    """Drawn with the probability `share`, from the whole range and evenly."""
    spread = (share * (1 - share) / total) ** 0.5
    assert abs(len(values) / total - share) < 4 * spread
    array = np.array(values)
    assert low <= array.min() < low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) < array.max() <= high
    assert abs(array.mean() - (low + high) / 2) < 4 * (high - low) / (12 * len(array)) ** 0.5


def present(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def test_probability_and_range_of_all_seven(draws: list[Changes]) -> None:
    moved = [d for d in draws if d.rotation_degrees is not None]
    for axis in range(3):
        assert_uniform([d.rotation_degrees[axis] for d in moved], -30, 30, 0.15)
    assert_uniform(present([d.scale for d in draws]), 0.7, 1.3, 0.15)
    assert all((d.scale is None) == (d.rotation_degrees is None) for d in draws)
    flips = np.array([d.flips for d in draws])
    assert flips.shape == (DRAWS, 3)
    assert (abs(flips.mean(0) - 0.5) < 0.02).all()
    assert abs(np.corrcoef(flips.T) - np.eye(3)).max() < 0.05  # each axis by itself
    assert_uniform(present([d.noise_variance for d in draws]), 0, 0.1, 0.15)
    for channel in range(2):
        assert_uniform(present([d.smoothing_sigmas[channel] for d in draws]), 0.5, 1.5, 0.15)
    assert_uniform(present([d.intensity_factor for d in draws]), 0.7, 1.3, 0.15)
    assert_uniform(present([d.intensity_offset for d in draws]), -0.1, 0.1, 0.15)
    assert_uniform(present([d.gamma for d in draws]), 0.7, 1.5, 0.15)


def patch() -> tuple[torch.Tensor, torch.Tensor]:
    label = torch.zeros(16, 18, 20, dtype=torch.uint8)
    label[3:8, 4:10, 5:15] = 2
    label[9:13, 4:10, 5:15] = 3
    image = torch.stack((label.float(), torch.randn(label.shape)))
    return image, label


def test_nothing_drawn_changes_nothing() -> None:
    image, label = patch()
    x, y = apply_augmentation(image, label, Changes(flips=(False,) * 3, smoothing_sigmas=(None, None)))
    assert torch.equal(x, image)
    assert torch.equal(y, label)


def test_labels_move_with_the_image_by_nearest_neighbour() -> None:
    _, label = patch()
    image = torch.stack([(label == value).float() for value in (2, 3)])
    changes = Changes(rotation_degrees=(10.0, -20.0, 25.0), scale=1.2, flips=(True, False, True))
    x, y = apply_augmentation(image, label, changes)
    assert y.dtype == torch.uint8
    assert set(y.unique().tolist()) <= {0, 2, 3}  # no value in between
    for value, channel in zip((2, 3), x, strict=True):
        assert (y[channel > 0.6] == value).all()
        assert (y[channel < 0.1] != value).all()
    assert not torch.equal(y, label)


def test_scale_enlarges_and_rotation_turns() -> None:
    image, label = patch()
    _, larger = apply_augmentation(image, label, Changes(rotation_degrees=(0.0, 0.0, 0.0), scale=1.25))
    growth = (larger > 0).sum() / (label > 0).sum()
    assert 1.25**3 * 0.75 < growth < 1.25**3 * 1.25
    square = torch.zeros(15, 15, 15, dtype=torch.uint8)
    square[2:5, 7, 7] = 1
    _, turned = apply_augmentation(square[None].float(), square, Changes(rotation_degrees=(0.0, 0.0, 90.0), scale=1.0))
    assert turned.sum() == 3
    assert turned[7, :, 7].sum() == 3  # about the third axis: the first becomes the second


def test_flips_of_some_axes_leave_the_other_draws_alone() -> None:
    some = Augmentation(flip=Flip(probability=1.0, axes=(0,)))
    every = Augmentation(flip=Flip(probability=1.0))
    generators = np.random.default_rng(3), np.random.default_rng(3)
    first = draw_augmentation(some, channels=2, dims=3, generator=generators[0])
    second = draw_augmentation(every, channels=2, dims=3, generator=generators[1])
    assert (first.flips, second.flips) == ((True, False, False), (True, True, True))
    assert replace(first, flips=second.flips) == second


def test_flips_are_exact() -> None:
    image, label = patch()
    x, y = apply_augmentation(image, label, Changes(flips=(False, True, False)))
    assert torch.equal(x, image.flip(2))
    assert torch.equal(y, label.flip(1))


def test_noise_has_the_variance_drawn_and_follows_its_seed() -> None:
    image, label = torch.zeros(1, 40, 40, 40), torch.zeros(40, 40, 40, dtype=torch.uint8)
    changes = Changes(noise_variance=0.09, noise_seed=5)
    x, _ = apply_augmentation(image, label, changes)
    assert abs(x.var() - 0.09) < 0.002
    assert torch.equal(x, apply_augmentation(image, label, changes)[0])
    assert not torch.equal(x, apply_augmentation(image, label, Changes(noise_variance=0.09, noise_seed=6))[0])


def test_smoothing_is_per_channel() -> None:
    image, label = patch()
    x, _ = apply_augmentation(image, label, Changes(smoothing_sigmas=(None, 1.0)))
    assert torch.equal(x[0], image[0])
    assert x[1].var() < 0.2 * image[1].var()


def test_intensities() -> None:
    image, label = patch()
    x, y = apply_augmentation(image, label, Changes(intensity_factor=1.2, intensity_offset=0.05))
    torch.testing.assert_close(x, image * 1.2 + 0.05)
    assert torch.equal(y, label)
    z, _ = apply_augmentation(image, label, Changes(gamma=1.4))
    low, high = image.min(), image.max()
    expected = ((image - low) / (high - low)) ** 1.4 * (high - low) + low
    torch.testing.assert_close(z, expected, rtol=1e-4, atol=1e-4)


def test_2d() -> None:
    generator = np.random.default_rng(0)
    settings = Augmentation.model_validate({"affine": {"probability": 1.0}})
    changes = draw_augmentation(settings, channels=3, dims=2, generator=generator)
    assert changes.rotation_degrees is not None
    assert len(changes.rotation_degrees) == 1
    label = torch.zeros(20, 24, dtype=torch.uint8)
    label[5:12, 6:16] = 1
    still = Changes(rotation_degrees=changes.rotation_degrees, scale=1.1, flips=(False, True))
    x, y = apply_augmentation(label.float().expand(3, 20, 24), label, still)
    assert x.shape == (3, 20, 24)
    assert (y[x[0] > 0.6] == 1).all()
    assert (y[x[0] < 0.4] == 0).all()
    assert not torch.equal(y, label)


def test_rotation_turns_bodies_in_space() -> None:
    """A ball in slices six times as thick as pixels stays a ball, and stays in the patch."""
    spacing = (0.6, 0.6, 3.6)
    places = np.stack(np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in (90, 90, 16)), indexing="ij"), -1)
    ball = torch.from_numpy((np.linalg.norm(places * spacing, axis=-1) < 20).astype(np.uint8))
    changes = Changes(rotation_degrees=(30.0, 0.0, 0.0), scale=1.0)
    _, turned = apply_augmentation(ball[None].float(), ball, changes, spacing)
    assert (turned != ball).float().mean() < 0.02
    _, sheared = apply_augmentation(ball[None].float(), ball, changes)
    assert (sheared != ball).float().mean() > 0.1
