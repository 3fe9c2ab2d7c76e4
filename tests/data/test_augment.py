"""The seven changes of appendix A and the further ones: how often, how much, and what they
do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from factorizer.config import MAX_DISPLACEMENT, Affine, Augmentation, Elastic, Flip
from factorizer.data.augment import (
    Changes,
    apply_augmentation,
    displacement_field,
    draw_augmentation,
    spline_basis,
)

DRAWS = 10_000


@pytest.fixture(scope="module")
def draws() -> list[Changes]:
    generator = np.random.default_rng(0)
    return [
        draw_augmentation(Augmentation(), channels=2, dims=3, generator=generator)
        for _ in range(DRAWS)
    ]


def assert_uniform(
    values: list[float], low: float, high: float, share: float, total: int = DRAWS
) -> None:
    """Drawn with the probability `share`, from the whole range and evenly."""
    spread = (share * (1 - share) / total) ** 0.5
    assert abs(len(values) / total - share) < 4 * spread
    array = np.array(values)
    assert low <= array.min() < low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) < array.max() <= high
    assert abs(array.mean() - (low + high) / 2) < 4 * (high - low) / (12 * len(array)) ** 0.5


def present(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@pytest.mark.slow
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


def test_without_changes_a_patch_stays_the_same() -> None:
    image, label = patch()
    x, y = apply_augmentation(
        image, label, Changes(flips=(False,) * 3, smoothing_sigmas=(None, None))
    )
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
    _, larger = apply_augmentation(
        image, label, Changes(rotation_degrees=(0.0, 0.0, 0.0), scale=1.25)
    )
    growth = (larger > 0).sum() / (label > 0).sum()
    assert 1.25**3 * 0.75 < growth < 1.25**3 * 1.25
    square = torch.zeros(15, 15, 15, dtype=torch.uint8)
    square[2:5, 7, 7] = 1
    _, turned = apply_augmentation(
        square[None].float(), square, Changes(rotation_degrees=(0.0, 0.0, 90.0), scale=1.0)
    )
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


def test_rotation_about_some_axes_leaves_the_other_draws_alone() -> None:
    generators = np.random.default_rng(3), np.random.default_rng(3)
    some, every = (
        draw_augmentation(
            Augmentation(affine=Affine(probability=1.0, axes=axes)),
            channels=1,
            dims=3,
            generator=generator,
        )
        for axes, generator in zip(((1,), None), generators, strict=True)
    )
    assert every.rotation_degrees is not None
    assert all(every.rotation_degrees)
    assert some.rotation_degrees == (0.0, every.rotation_degrees[1], 0.0)
    assert replace(some, rotation_degrees=every.rotation_degrees) == every


def test_a_plane_survives_rotation_about_its_normal_and_deformation_along_itself() -> None:
    label = torch.ones(16, 18, 20, dtype=torch.uint8)
    label[:, 9:] = 2  # as anterior and posterior meet in a coronal plane
    draws = Augmentation(
        affine=Affine(probability=1.0, axes=(1,)),
        elastic=Elastic(probability=1.0, displacement_voxels=(4, 4), axes=(0, 2)),
    )
    changes = draw_augmentation(draws, channels=1, dims=3, generator=np.random.default_rng(0))
    changes = replace(changes, flips=(False,) * 3, smoothing_sigmas=(None,), scale=1.0)
    image = torch.arange(16 * 18 * 20).reshape(1, 16, 18, 20).float()
    x, y = apply_augmentation(image, label, changes)
    assert not torch.equal(x, image)
    assert set(y[:, :9].unique().tolist()) <= {0, 1}
    assert set(y[:, 9:].unique().tolist()) <= {0, 2}
    free = replace(changes, displacement_axes=None)
    assert 2 in apply_augmentation(image, label, free)[1][:, :9]


@pytest.mark.slow
def test_elastic_deformation_is_off_by_default_and_leaves_the_other_draws_alone() -> None:
    bending = Augmentation(elastic=Elastic(probability=0.3, displacement_voxels=(1.0, 3.0)))
    generators = [np.random.default_rng((7, index)) for index in range(DRAWS)]
    bent = [draw_augmentation(bending, channels=1, dims=3, generator=g) for g in generators]
    generators = [np.random.default_rng((7, index)) for index in range(DRAWS)]
    plain = [draw_augmentation(Augmentation(), channels=1, dims=3, generator=g) for g in generators]
    assert_uniform(present([d.displacement_voxels for d in bent]), 1, 3, 0.3)
    assert all(d.displacement_voxels is None for d in plain)
    for a, b in zip(bent[:100], plain[:100], strict=True):
        same = {"displacement_voxels": None, "displacement_seed": 0}
        assert replace(a, **same) == replace(b, **same)


@pytest.mark.parametrize(("size", "distance"), [(40, 10.0), (41, 7.3), (5, 10.0), (16, 1.7)])
def test_splines_reproduce_constants_and_straight_lines(size: int, distance: float) -> None:
    basis = spline_basis(size, distance)
    reach = basis.shape[1] // 2
    points = distance * torch.arange(-reach, reach + 1)
    torch.testing.assert_close(basis.sum(1), torch.ones(size))
    torch.testing.assert_close(
        basis @ points, torch.arange(size) - (size - 1) / 2, rtol=1e-5, atol=1e-4
    )


def test_displacement_is_within_its_bound_and_favours_no_direction() -> None:
    bent = [
        Changes(displacement_voxels=3.0, control_spacing_voxels=2.0, displacement_seed=seed)
        for seed in range(50)
    ]
    fields = torch.stack(
        [displacement_field((16, 16, 16), changes, [1.0, 1.0, 1.0]) for changes in bent]
    )
    assert 1.5 < fields.abs().max() <= 3
    assert fields.mean((0, 2, 3, 4)).abs().max() < 0.05


def worst_strain(dims: int) -> float:
    """The largest derivative along itself of a deformation whose control points move by up to their
    distance."""
    basis = spline_basis(161, 20.0).double()
    values, slopes = basis[60:101], 10 * (basis[61:102] - basis[59:100])  # in two cells
    total = torch.zeros(1)
    for axis in range(dims):  # one slope times the values along the other axes
        product = torch.ones(1, 1)
        for other in range(dims):
            product = torch.kron(product, slopes if other == axis else values)
        total = total + product
    return float(total.abs().sum(1).max())


@pytest.mark.slow
def test_the_limit_is_where_deformations_can_fold() -> None:
    """With all control points moved in the directions that are worst for a voxel (Choi and Lee
    2000: 1 / 2.479)."""
    assert 0.98 < MAX_DISPLACEMENT * worst_strain(3) < 1
    with pytest.raises(
        ValueError, match=r"10 voxels apart may move by 4 .* goes up to 4.5; lower it"
    ):
        Elastic(displacement_voxels=(0.0, 4.5))
    Elastic(control_spacing_voxels=0.7, displacement_voxels=(0.0, 0.28))


def test_deformation_moves_image_and_labels_together_and_follows_its_seed() -> None:
    _, label = patch()
    image = torch.stack([(label == value).float() for value in (2, 3)])
    changes = Changes(displacement_voxels=2.4, control_spacing_voxels=6.0, displacement_seed=3)
    x, y = apply_augmentation(image, label, changes)
    assert y.dtype == torch.uint8
    assert 0.05 < (y != label).sum() / (label > 0).sum() < 0.6
    for value, channel in zip((2, 3), x, strict=True):
        assert (y[channel > 0.6] == value).all()
        assert (y[channel < 0.1] != value).all()
    assert torch.equal(x, apply_augmentation(image, label, changes)[0])
    assert not torch.equal(
        x, apply_augmentation(image, label, replace(changes, displacement_seed=4))[0]
    )


def test_deformation_is_in_space() -> None:
    """Slices four times as thick are displaced by a quarter of their number, between control points
    as far apart."""
    changes = Changes(displacement_voxels=2.0, control_spacing_voxels=8.0)
    fine = displacement_field((32, 32, 4 * 9), changes, [1.0, 1.0, 1.0])
    thick = displacement_field((32, 32, 9), changes, [1.0, 1.0, 4.0])
    centres = (fine[..., 1::4] + fine[..., 2::4]) / 2  # of a thick slice
    torch.testing.assert_close(thick[2] * 4, centres[2], atol=0.03, rtol=0)
    torch.testing.assert_close(thick[:2], centres[:2], atol=0.03, rtol=0)


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
    assert not torch.equal(
        x, apply_augmentation(image, label, Changes(noise_variance=0.09, noise_seed=6))[0]
    )


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


def test_further_changes_leave_the_papers_seven_as_they_were() -> None:
    further = {
        "low_resolution": {"probability": 1.0},
        "inverted_contrast": {"probability": 1.0},
        "channel_dropout": {"probability": 1.0},
    }
    settings = Augmentation.model_validate(further)
    plain = draw_augmentation(
        Augmentation(), channels=2, dims=3, generator=np.random.default_rng(4)
    )
    more = draw_augmentation(settings, channels=2, dims=3, generator=np.random.default_rng(4))
    assert None not in (*more.low_resolution_scales, more.inverted_gamma, more.lost_channel)
    without = replace(
        more, low_resolution_scales=(None, None), inverted_gamma=None, lost_channel=None
    )
    assert without == plain


def test_probability_and_range_of_further_changes() -> None:
    settings = Augmentation.model_validate(
        {
            "low_resolution": {"probability": 0.25, "scale": [0.5, 0.9]},
            "inverted_contrast": {"probability": 0.1, "gamma": [0.8, 1.4]},
            "channel_dropout": {"probability": 0.2},
        }
    )
    generator = np.random.default_rng(1)
    draws = [
        draw_augmentation(settings, channels=2, dims=3, generator=generator) for _ in range(DRAWS)
    ]
    for channel in range(2):
        scales = [draw.low_resolution_scales[channel] for draw in draws]
        assert_uniform(present(scales), 0.5, 0.9, 0.25)
    assert_uniform(present([draw.inverted_gamma for draw in draws]), 0.8, 1.4, 0.1)
    lost = present([draw.lost_channel for draw in draws])
    assert abs(len(lost) / DRAWS - 0.2) < 0.02
    assert abs(np.mean(lost) - 0.5) < 0.05


def test_a_lost_channel_is_zero_and_the_others_stay() -> None:
    image, label = patch()
    before = image.clone()
    x, y = apply_augmentation(image, label, Changes(lost_channel=1))
    assert torch.equal(x[0], before[0])
    assert (x[1] == 0).all()
    assert torch.equal(y, label)
    assert torch.equal(image, before)


def test_low_resolution_keeps_a_ramp_and_blurs_a_grid() -> None:
    ramp = torch.arange(32.0).view(1, 32, 1, 1).expand(1, 32, 32, 32)
    grid = (torch.arange(32) % 2).float().view(1, 1, 32, 1).expand(1, 32, 32, 32)
    image, label = torch.cat((ramp, grid)), torch.zeros(32, 32, 32, dtype=torch.uint8)
    x, _ = apply_augmentation(image, label, Changes(low_resolution_scales=(0.5, 0.5)))
    assert (x[0] - image[0]).abs().max() <= 1
    assert x[1].var() < 0.01
    kept, _ = apply_augmentation(image, label, Changes(low_resolution_scales=(None, 0.5)))
    assert torch.equal(kept[0], image[0])
    same, _ = apply_augmentation(image, label, Changes(low_resolution_scales=(1.0, 1.0)))
    torch.testing.assert_close(same, image)


def test_inverted_contrast_acts_from_the_bright_end() -> None:
    image, label = patch()
    x, _ = apply_augmentation(image, label, Changes(inverted_gamma=1.4))
    low, high = image.min(), image.max()
    expected = high - ((high - image) / (high - low)) ** 1.4 * (high - low)
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-4)


def test_2d() -> None:
    generator = np.random.default_rng(0)
    augmentation = Augmentation.model_validate({"affine": {"probability": 1.0}})
    changes = draw_augmentation(augmentation, channels=3, dims=2, generator=generator)
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
    bent, _ = apply_augmentation(
        label.float()[None], label, Changes(displacement_voxels=2.0, control_spacing_voxels=6.0)
    )
    assert not torch.equal(bent[0], label.float())


def test_rotation_turns_bodies_in_space() -> None:
    """A ball in slices six times as thick as pixels stays a ball, and stays in the patch."""
    spacing = (0.6, 0.6, 3.6)
    places = np.stack(
        np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in (90, 90, 16)), indexing="ij"), -1
    )
    ball = torch.from_numpy((np.linalg.norm(places * spacing, axis=-1) < 20).astype(np.uint8))
    changes = Changes(rotation_degrees=(30.0, 0.0, 0.0), scale=1.0)
    _, turned = apply_augmentation(ball[None].float(), ball, changes, spacing)
    assert (turned != ball).float().mean() < 0.02
    _, sheared = apply_augmentation(ball[None].float(), ball, changes)
    assert (sheared != ball).float().mean() > 0.1
