"""Preprocessing, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import Case, DataError, Source
from factorizer.data.preprocess import (
    Prepared,
    Preprocessing,
    check_resampling,
    nonzero_box,
    prepare_case,
    resample,
    resampled_shape,
    restore,
    zscore,
)
from testkit.writing import write_nifti


def prepare(
    folder: Path, image: np.ndarray, label: np.ndarray, spacing=(1.0, 1.0, 1.0), **options: object
) -> Prepared:
    affine = np.diag((-spacing[0], *spacing[1:], 1.0))
    channels = {
        f"c{i}": Source(write_nifti(folder / f"{i}.nii.gz", x, affine)) for i, x in enumerate(image)
    }
    case = Case("case", channels, write_nifti(folder / "label.nii.gz", label, affine))
    return prepare_case(
        case, Preprocessing(**options), channels=tuple(channels), label_values={0: 0, 1: 1}
    )


@pytest.fixture
def image() -> np.ndarray:
    """Two channels in a box of 10 x 8 x 6 inside 16 x 16 x 16."""
    image = np.zeros((2, 16, 16, 16), np.float32)
    image[0, 3:13, 4:12, 5:11] = np.random.default_rng(0).uniform(10, 20, (10, 8, 6))
    image[1, 4:12, 4:12, 5:11] = np.random.default_rng(1).uniform(1000, 5000, (8, 8, 6))
    return image


def test_the_crop_is_the_smallest_box_around_any_channel(tmp_path: Path, image) -> None:
    prepared = prepare(tmp_path, image, image[0] > 15)
    assert prepared.image.shape == (2, 10, 8, 6)
    assert prepared.label is not None
    assert prepared.label.shape == (10, 8, 6)
    np.testing.assert_array_equal(
        prepared.label, (image[0] > 15)[::-1][3:13, 4:12, 5:11]
    )  # turned to left-right


def test_z_scores_are_over_nonzero_voxels_and_zeros_stay(image) -> None:
    scored = zscore(image, nonzero=True)
    for before, after in zip(image, scored, strict=True):
        inside = before != 0
        assert abs(after[inside].mean()) < 1e-5
        assert abs(after[inside].std() - 1) < 1e-5
        assert not after[~inside].any()
    box = (slice(None), *nonzero_box(image))
    np.testing.assert_array_equal(
        zscore(image[box], nonzero=True), scored[box]
    )  # cropping cannot change them


def test_a_background_that_a_file_has_rounded_is_zero_again(tmp_path: Path, image) -> None:
    """nibabel writes floats as scaled integers, and then a zero may become another value."""
    image[1] -= 3 * (image[1] > 0)
    rounded = image + np.array([1e-4, -0.05], np.float32)[:, None, None, None] * (image == 0)
    exact, near = (
        prepare(tmp_path / name, x, image[0] > 15)
        for name, x in (("exact", image), ("near", rounded))
    )
    assert not np.array_equal(image, rounded)
    np.testing.assert_array_equal(near.image, exact.image)
    assert near.frame.box == exact.frame.box
    far = prepare(
        tmp_path / "far", np.where(image == 0, 1.0, image).astype(np.float32), image[0] > 15
    )
    assert far.image.shape == image.shape  # a real background is left as it is


def test_z_scores_can_be_over_all_voxels(image) -> None:
    scored = zscore(image, nonzero=False)
    np.testing.assert_allclose(scored.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(scored.std((1, 2, 3)), 1, atol=1e-5)
    darkest = scored.min((1, 2, 3), keepdims=True)
    np.testing.assert_array_equal(scored == darkest, image == image.min((1, 2, 3), keepdims=True))


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_intensities_may_have_any_unit(unit: float) -> None:
    image = np.random.default_rng(0).uniform(1, 2, (1, 6, 6, 6)) * unit  # an ADC map in m^2/s, say
    assert zscore(image, nonzero=True).std() == pytest.approx(1, rel=1e-5)


def test_a_constant_channel_becomes_zero() -> None:
    assert not zscore(np.full((1, 4, 4, 4), 7.0), nonzero=True).any()
    assert (
        np.abs(zscore(np.full((1, 4, 4, 4), 0.1), nonzero=True)).max() < 1
    )  # not blown up from rounding


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.9, 0.9, 4.8)])
def test_a_label_comes_back_to_its_own_grid(tmp_path: Path, image, spacing) -> None:
    label = (image[0] > 15).astype(np.uint8)
    prepared = prepare(tmp_path, image, label, spacing)
    assert prepared.label is not None
    back = restore(prepared.label[None], prepared.frame, "nearest")[0]
    np.testing.assert_array_equal(back, label)
    assert back.shape == prepared.frame.grid.shape


def test_a_resampled_label_comes_back_as_the_same_object(tmp_path: Path) -> None:
    points = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in (40, 40, 12)), indexing="ij"))
    ball = (np.square(points).sum(0) < 0.4).astype(np.uint8)
    image = np.ones((1, 40, 40, 12), np.float32) + ball
    prepared = prepare(tmp_path, image, ball, (1.0, 1.0, 4.0), spacing_mm=(2.0, 2.0, 2.0))
    assert prepared.image.shape == (1, 20, 20, 24)
    np.testing.assert_allclose(prepared.frame.spacing_mm, (2.0, 2.0, 2.0))
    assert prepared.label is not None
    back = restore(prepared.label[None], prepared.frame, "nearest")[0]
    assert back.shape == ball.shape
    dice = 2 * np.count_nonzero(back & ball) / (back.sum() + ball.sum())
    assert dice > 0.93
    volumes = prepared.label.sum() * 8, ball.sum() * 4
    assert abs(volumes[0] / volumes[1] - 1) < 0.05


def test_resampling_keeps_the_extent() -> None:
    assert resampled_shape((112, 112, 25), (2.0, 2.0, 4.8), (2.0, 2.0, 2.0)) == (112, 112, 60)
    assert resampled_shape((3, 3, 1), (1.0, 1.0, 1.0), None) == (3, 3, 1)
    ramp = np.linspace(0, 1, 8, dtype=np.float32)[None, :, None, None].repeat(4, 2).repeat(4, 3)
    fine = resample(ramp, (16, 4, 4), "linear")[0, :, 0, 0]
    np.testing.assert_allclose(fine[1:-1], (np.arange(1, 15) - 0.5) / 14, atol=1e-6)


def test_normalization_can_be_left_out(tmp_path: Path, image) -> None:
    prepared = prepare(tmp_path, image, image[0] > 0, normalization="none", crop_to_nonzero=False)
    np.testing.assert_array_equal(prepared.image, image[:, ::-1])


def test_channels_are_clipped_first(tmp_path: Path, image) -> None:
    options = {"crop_to_nonzero": False, "normalization": "none"}
    prepared = prepare(tmp_path, image, image[0] > 15, clip=((12.0, 15.0), None), **options)
    plain = prepare(tmp_path, image, image[0] > 15, **options)
    np.testing.assert_array_equal(prepared.image[0], np.clip(plain.image[0], 12, 15))
    np.testing.assert_array_equal(prepared.image[1], plain.image[1])


@pytest.mark.parametrize("exponent", [-145, -110, -80, -60, 60, 70, 90, 120, 127])
@pytest.mark.parametrize("nonzero", [True, False])
def test_z_scores_do_not_depend_on_the_unit(exponent: int, nonzero: bool) -> None:
    """Intensities times a power of two give the same bits, up to the limits of float32."""
    image = np.random.default_rng(0).integers(-900, 1000, (1, 6, 6, 6)).astype(np.float32) / 1024
    image = (
        image if exponent > -130 else np.rint(16 * image)
    )  # of the smallest numbers few bits are left
    scored = zscore(np.ldexp(image, exponent), nonzero=nonzero)
    np.testing.assert_array_equal(scored, zscore(image, nonzero=nonzero))
    assert scored[image != 0].std() == pytest.approx(1, rel=0.1)


def test_ordinary_z_scores_follow_the_plain_formula(image) -> None:
    """Bit for bit: mean and variance are summed in float64, voxels stay float32."""
    for unit in (1e-12, 1.0, 1e12):
        values = image[0][image[0] != 0] * np.float32(unit)
        values -= values.mean(dtype=np.float64)
        values /= np.sqrt(np.square(values).mean(dtype=np.float64))
        scored = zscore(image[:1] * np.float32(unit), nonzero=True)[0]
        np.testing.assert_array_equal(scored[image[0] != 0], values)


def test_an_image_with_the_largest_float32_values_is_prepared(tmp_path: Path, image) -> None:
    usual = prepare(tmp_path / "usual", image - 15 * (image > 0), image[0] > 15)
    large = prepare(tmp_path / "large", np.ldexp(image - 15 * (image > 0), 114), image[0] > 15)
    np.testing.assert_array_equal(large.image, usual.image)
    signed = np.where(image > 15, 3e38, -3e38).astype(np.float32)  # the range itself is beyond
    assert np.isfinite(prepare(tmp_path / "signed", signed, image[0] > 15).image).all()


def test_a_channel_clipped_to_zero_is_zero(tmp_path: Path, image) -> None:
    options = {"clip": ((-1.0, 0.0), None), "normalization": "zscore", "crop_to_nonzero": False}
    prepared = prepare(tmp_path, image, image[0] > 15, **options)
    assert not prepared.image[0].any()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (30.0, "its 16 x 16 x 16 voxels become 480 x 480 x 480, and at most 1,000 times more"),
        (0.1, "its 16 x 16 x 16 voxels become 2 x 2 x 2, and less than 32 along the longest axis"),
        (0.002, "its 16 x 16 x 16 voxels become 1 x 1 x 1, and"),
    ],
)
def test_an_image_that_resampling_enlarges_or_shrinks_too_much_is_refused(
    tmp_path: Path, image, size, message
) -> None:
    with pytest.raises(DataError, match=rf"case: at the model's spacing {message}") as caught:
        prepare(tmp_path, image, image[0] > 15, (size,) * 3, spacing_mm=(1.0, 1.0, 1.0))
    assert caught.value.problems[0].case == "case"


@pytest.mark.parametrize(
    ("before", "spacing", "target"),
    [
        ((1760, 1760, 1280), (0.1, 0.1, 0.1), (1.0, 1.0, 1.0)),  # the finest human brain there is
        ((512, 512, 20), (0.4, 0.4, 10.0), (0.5, 0.5, 0.5)),
        ((64, 64, 40), (8.0, 8.0, 8.0), (1.0, 1.0, 1.0)),  # SPECT
        ((512, 512, 1500), (0.8, 0.8, 0.6), (0.7, 0.7, 0.7)),
    ],
)
def test_real_images_are_resampled(before, spacing, target) -> None:
    check_resampling("case", before, resampled_shape(before, spacing, target))


def test_memory_that_runs_out_is_a_problem_of_the_case(tmp_path: Path, image, monkeypatch) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
        )

    monkeypatch.setattr("torch.nn.functional.interpolate", run_out)
    with pytest.raises(DataError, match="case: it needs more memory than is available"):
        prepare(tmp_path, image, image[0] > 15, (1.0, 1.0, 1.0), spacing_mm=(2.0, 2.0, 2.0))
