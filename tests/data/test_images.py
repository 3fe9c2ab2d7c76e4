"""Orientation and geometry of images, and errors of bad files."""

from __future__ import annotations

import gzip
from contextlib import suppress
from itertools import permutations, product
from pathlib import Path

import nibabel
import numpy as np
import pytest
from nibabel.orientations import ornt_transform

from factorizer.data.cases import Case, Cohort, DataError, Source
from factorizer.data.images import (
    VoxelGrid,
    canonical_grid,
    read_image,
    read_label,
    restore_orientation,
)
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import Preprocessing, prepare_case, restore
from testkit.writing import SHAPE, random_image, random_label, write_isles, write_msd, write_nifti

AXES_AND_SIGNS = list(product(permutations(range(3)), product((1, -1), repeat=3)))
ORIENTATIONS = [np.column_stack(pair) for pair in AXES_AND_SIGNS]


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return read_cohort(write_msd(tmp_path, channels=["T1"]))


def image_file(case: Case) -> Path:
    return next(iter(case.channels.values())).file


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_all_48_orientations_give_the_same_content_and_turn_back(
    tmp_path: Path, orientation
) -> None:
    affine = np.diag((1.0, 1.5, 2.0, 1.0))
    affine[:3, 3] = (-5, 7, 11)
    reference = nibabel.Nifti1Image(random_image(0), affine)
    turned = reference.as_reoriented(
        ornt_transform(np.array([[0, 1], [1, 1], [2, 1]]), orientation)
    )
    file = tmp_path / "image.nii.gz"
    nibabel.save(turned, file)
    label = write_nifti(
        tmp_path / "label.nii.gz", (turned.get_fdata() > 50).astype(np.uint8), turned.affine
    )
    case = Case("case", {"T1": Source(file)}, label)
    volume = read_image(case)
    np.testing.assert_array_equal(volume.array[0], reference.get_fdata(dtype=np.float32))
    np.testing.assert_allclose(volume.spacing_mm, (1.0, 1.5, 2.0))
    np.testing.assert_allclose(canonical_grid(volume.grid).affine, affine, atol=1e-9)
    np.testing.assert_array_equal(read_label(case, {0: 0, 1: 1}, volume.grid), volume.array[0] > 50)
    np.testing.assert_array_equal(
        restore_orientation(volume.array, volume.grid)[0], turned.get_fdata(dtype=np.float32)
    )
    whole = Preprocessing(spacing_mm=(0.5, 0.75, 1.0))
    prepared = prepare_case(case, whole, channels=("T1",), label_values={0: 0, 1: 1})
    assert prepared.label is not None
    assert prepared.label.shape == tuple(2 * n for n in SHAPE)
    back = restore(prepared.label[None], prepared.frame, "nearest")[0]
    np.testing.assert_array_equal(back, turned.get_fdata() > 50)


def test_there_are_48_orientations() -> None:
    assert len({orientation.tobytes() for orientation in ORIENTATIONS}) == 48


def test_an_oblique_label_is_turned_like_its_image(tmp_path: Path) -> None:
    """At 45 degrees, rounding decides which axis is which."""

    def affine(degrees: float):
        angle, matrix = np.deg2rad(degrees), np.eye(4)
        matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        return matrix

    image = random_image(0, (10, 10, 8))
    file = write_nifti(tmp_path / "image.nii.gz", image, affine(45 - 1e-4))
    label = write_nifti(tmp_path / "label.nii.gz", image > 50, affine(45 + 1e-4))
    case = Case("case", {"T1": Source(file)}, label)
    volume = read_image(case)
    np.testing.assert_array_equal(read_label(case, {0: 0, 1: 1}, volume.grid), volume.array[0] > 50)


def test_an_oblique_image_keeps_its_nearest_axes(cohort: Cohort) -> None:
    angle = np.deg2rad(20)
    affine = np.eye(4)
    affine[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    case = cohort.cases[0]
    write_nifti(image_file(case), random_image(0), affine)
    np.testing.assert_array_equal(read_image(case).array[0], random_image(0))


def nan_image() -> np.ndarray:
    image = random_image(0)
    image[0, 0, 0], image[1, 1, 1] = np.nan, np.inf
    return image


@pytest.mark.parametrize(
    ("array", "affine", "message"),
    [
        (nan_image(), None, "2 voxels of channel T1 are NaN or infinite"),
        (np.zeros(SHAPE, np.float32), None, "every voxel of channel T1 is zero"),
        (random_image(0), np.diag((0.0, 1, 1, 1)), "its affine is singular"),
        (random_image(0, (12, 10)), None, "it is 2D"),
        (random_image(0, (12, 10, 1)), None, "it is 2D"),
        (
            random_image(0, (*SHAPE, 2)),
            None,
            r"it holds 2 channels \(shape .*\), but should hold 1",
        ),
        (random_image(0, (*SHAPE, 1, 2)), None, r"it has the shape \(12, 10, 8, 1, 2\)"),
        (random_image(0).astype(np.complex64), None, "its voxels are of the type complex64"),
        (
            random_image(0),
            np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]),
            "its affine is singular",
        ),
    ],
)
def test_a_bad_image_is_named_with_a_remedy(cohort: Cohort, array, affine, message: str) -> None:
    case = cohort.cases[0]
    image = nibabel.Nifti1Image(array, np.eye(4))
    if affine is not None:
        image.header.set_sform(affine, code=1)
        image.header.set_qform(None, code=0)
        image = nibabel.Nifti1Image(array, affine, image.header)
    nibabel.save(image, image_file(case))
    with pytest.raises(DataError, match=message) as caught:
        read_image(case)
    (problem,) = caught.value.problems
    assert problem.file == str(image_file(case))
    assert problem.case == case.name
    assert problem.remedy


def test_grids_far_apart_are_compared() -> None:
    near, far = (VoxelGrid((4, 4, 4), np.diag((1.0, 1.0, 1.0, 1.0))) for _ in range(2))
    far.affine[0, 3] = 1e300
    assert "mm away" in far.differs_from(near)
    assert far.differs_from(far) == ""


def test_values_beyond_float32_are_named(tmp_path: Path) -> None:
    for scale, message in (
        (1e40, "1 voxels of channel T1 are NaN or infinite"),
        (1e-60, "as far as float32 can tell"),
    ):
        image = np.zeros(SHAPE)
        image[1, 2, 3] = scale
        file = write_nifti(tmp_path / "image.nii.gz", image)
        with pytest.raises(DataError, match=message):
            read_image(Case("case", {"T1": Source(file)}))


def test_a_label_with_infinite_values_is_refused(cohort: Cohort) -> None:
    case = cohort.cases[0]
    write_nifti(case.label, nan_image())
    with pytest.raises(DataError, match="it has values that are not declared"):
        read_label(case, cohort.label_values, read_image(case).grid)


def test_a_file_cut_short_is_named(cohort: Cohort) -> None:
    file = image_file(cohort.cases[0])
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"case_000\.nii\.gz: it is damaged or cut short"):
        read_image(cohort.cases[0])


@pytest.mark.parametrize("content", [b"", b"hello", gzip.compress(b"hello")])
def test_a_file_that_is_not_an_image_is_named(cohort: Cohort, content: bytes) -> None:
    file = image_file(cohort.cases[0])
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"case_000\.nii\.gz: it is (not a NIfTI image|damaged)"):
        read_image(cohort.cases[0])


def test_a_file_without_permission_is_named(cohort: Cohort, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gzip, "open", refuse)
    with pytest.raises(DataError, match="the file cannot be read; change its permissions"):
        read_image(cohort.cases[0])


def test_a_wrong_number_of_channels_is_named(tmp_path: Path) -> None:
    cohort = read_cohort(write_msd(tmp_path))
    file = image_file(cohort.cases[0])
    for count in (3, 5):
        write_nifti(file, random_image(0, (*SHAPE, count)))
        with pytest.raises(DataError, match=rf"it holds {count} channels .*, but should hold 4"):
            read_image(cohort.cases[0])


def test_the_file_of_the_bad_channel_is_named(tmp_path: Path) -> None:
    cohort = read_cohort(write_isles(tmp_path))
    write_nifti(cohort.cases[0].channels["ADC"].file, nan_image())
    with pytest.raises(DataError, match=r"_adc\.nii\.gz: 2 voxels of channel ADC"):
        read_image(cohort.cases[0])


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_header_gives_at_most_one_error(tmp_path: Path, seed: int) -> None:
    file = write_nifti(tmp_path / "image.nii", random_image(0))
    content = bytearray(file.read_bytes())
    generator = np.random.default_rng(seed)
    for _ in range(3):
        content[generator.integers(40, 348)] = generator.integers(256)
    file.write_bytes(content)
    with suppress(DataError):  # nothing else may come out
        assert np.isfinite(read_image(Case("case", {"T1": Source(file)})).array).all()


@pytest.mark.parametrize(
    ("label", "affine", "message"),
    [
        (
            random_label(0, shape=(12, 10, 9)),
            None,
            r"not on the image's grid: its shape is \(12, 10, 9\), not \(12, 10, 8\)",
        ),
        (
            random_label(0),
            np.diag((1.0, 1.5, 2.3, 1.0)),
            "not on the image's grid: its corners are up to 2.10 mm away",
        ),
        (random_label(0, (0, 1, 9)), None, "values that are not declared: 9"),
        (np.full(SHAPE, 0.5, np.float32), None, "values that are not declared: 0.5"),
        (random_image(0), None, "and 955 more; correct the label"),
    ],
)
def test_a_bad_label_is_named_with_a_remedy(cohort: Cohort, label, affine, message: str) -> None:
    case = cohort.cases[0]
    assert case.label is not None
    write_nifti(case.label, label, affine)
    with pytest.raises(DataError, match=message) as caught:
        read_label(case, cohort.label_values, read_image(case).grid)
    assert caught.value.problems[0].file == str(case.label)


def test_a_label_stored_as_float_may_be_slightly_off(cohort: Cohort) -> None:
    case = cohort.cases[0]
    assert case.label is not None
    affine = np.diag((1.0, 1.5, 2.0, 1.0))
    affine[0, 3] = 1e-4
    write_nifti(case.label, random_label(0).astype(np.float32), affine)
    np.testing.assert_array_equal(
        read_label(case, cohort.label_values, read_image(case).grid), random_label(0)
    )


def test_a_flipped_bit_in_a_compressed_file_is_noticed(tmp_path: Path) -> None:
    """Its checksum is at the end of the file, after the last voxel."""
    file = write_nifti(tmp_path / "image.nii.gz", random_image(0).astype(np.int16))
    whole, generator = file.read_bytes(), np.random.default_rng(0)
    for place in generator.integers(len(whole) // 2, len(whole) - 8, 20):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(generator.integers(8))
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged or cut short"):
            read_image(Case("case", {"T1": Source(file)}))


def test_labels_stored_with_a_scale_factor_are_whole_numbers(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(random_label(0).astype(np.float32), np.eye(4))
    image.set_data_dtype(np.int16)  # nibabel then scales floats to the whole range
    nibabel.save(image, tmp_path / "label.nii.gz")
    assert np.any(nibabel.load(tmp_path / "label.nii.gz").get_fdata() % 1)
    file = write_nifti(tmp_path / "image.nii.gz", random_image(0), np.eye(4))
    case = Case("case", {"T1": Source(file)}, tmp_path / "label.nii.gz")
    label = read_label(case, {0: 0, 1: 1, 2: 2, 3: 3}, read_image(case).grid)
    np.testing.assert_array_equal(label, random_label(0))
    write_nifti(tmp_path / "label.nii.gz", random_label(0) + np.float32(0.25), np.eye(4))
    with pytest.raises(DataError, match=r"not declared: 0\.25, 1\.25"):
        read_label(case, {0: 0, 1: 1, 2: 2, 3: 3}, read_image(case).grid)
