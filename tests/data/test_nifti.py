"""Wrong headers, units, and files that must not be read to their end."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import nibabel
import numpy as np
import pytest

from factorizer.data import capacity
from factorizer.data.cases import Case, DataError, Source
from factorizer.data.images import read_image
from factorizer.data.nifti import read_header, read_voxels
from factorizer.data.outputs import encode_nifti
from testkit.writing import SHAPE, random_image, write_nifti

AFFINE = np.array([[-2.0, 0, 0, 30], [0, 1.5, 0, -20], [0, 0, 4.0, 10], [0, 0, 0, 1]])
SIZE_OF_HEADER = 348
DIM, VOX_OFFSET = 40, 108  # bytes in the header


def read(file: Path):
    return read_image(Case("case", {"T1": Source(file)}))


def write_unit(file: Path, unit: str, scale: float) -> Path:
    """The same image with its affine in another unit."""
    affine = AFFINE.copy()
    affine[:3] *= scale
    image = nibabel.Nifti1Image(random_image(0), affine)
    image.header.set_xyzt_units(unit)
    nibabel.save(image, file)
    return file


def change(file: Path, place: int, form: str, *values: float) -> Path:
    content = bytearray(
        gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    )
    struct.pack_into("<" + form, content, place, *values)
    file.write_bytes(gzip.compress(bytes(content)) if file.suffix == ".gz" else bytes(content))
    return file


@pytest.mark.parametrize(
    ("unit", "scale"), [("mm", 1.0), ("meter", 1e-3), ("micron", 1e3), ("unknown", 1.0)]
)
def test_sizes_are_in_millimetres_for_every_unit(tmp_path: Path, unit: str, scale: float) -> None:
    volume = read(write_unit(tmp_path / "image.nii.gz", unit, scale))
    np.testing.assert_allclose(volume.spacing_mm, (2.0, 1.5, 4.0), rtol=1e-6)
    np.testing.assert_allclose(volume.grid.affine, AFFINE, rtol=1e-6)


@pytest.mark.parametrize(("unit", "scale"), [("mm", 1.0), ("meter", 1e-3), ("micron", 1e3)])
def test_predictions_have_the_unit_and_affine_of_the_image(
    tmp_path: Path, unit: str, scale: float
) -> None:
    file = write_unit(tmp_path / "image.nii.gz", unit, scale)
    (tmp_path / "labels.nii.gz").write_bytes(encode_nifti(np.ones(SHAPE, np.uint8), file))
    image, labels = nibabel.load(file), nibabel.load(tmp_path / "labels.nii.gz")
    np.testing.assert_array_equal(labels.affine, image.affine)
    assert labels.header.get_xyzt_units() == image.header.get_xyzt_units()
    np.testing.assert_array_equal(labels.header["pixdim"], image.header["pixdim"])
    assert not read(tmp_path / "labels.nii.gz").grid.differs_from(read(file).grid)


@pytest.mark.parametrize(
    ("unit", "scale", "message"),
    [
        (
            "meter",
            1.0,
            r"voxels are 2000 x 1500 x 4000 mm, and from 0\.001 to 100 mm .*unit is metres",
        ),
        ("micron", 0.1, r"voxels are 0\.0002 x 0\.00015 x 0\.0004 mm"),
        ("mm", 1e-6, "voxels are 2e-06 x 1.5e-06 x 4e-06 mm"),
        ("mm", 30.0, "voxels are 60 x 45 x 120 mm"),
    ],
)
def test_impossible_voxel_sizes_are_refused(
    tmp_path: Path, unit: str, scale: float, message: str
) -> None:
    with pytest.raises(DataError, match=rf"image\.nii\.gz: {message}"):
        read(write_unit(tmp_path / "image.nii.gz", unit, scale))


def test_microscopes_and_thick_slices_are_read(tmp_path: Path) -> None:
    for size in (0.001, 0.01, 10.0, 100.0):
        read(
            write_nifti(
                tmp_path / "image.nii.gz", random_image(0), np.diag((size, size, size, 1.0))
            )
        )


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_voxels_that_begin_inside_the_header_are_refused(tmp_path: Path, ending: str) -> None:
    file = write_nifti(tmp_path / f"image{ending}", random_image(0))
    for offset in (0.0, 16.0, -352.0, 352.5, float("nan"), float("inf")):
        with pytest.raises(DataError, match=r"voxels begin at byte|damaged|longer"):
            read(change(file, VOX_OFFSET, "f", offset))


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_file_longer_than_its_header_says_is_refused(tmp_path: Path, ending: str) -> None:
    file = write_nifti(tmp_path / f"image{ending}", random_image(0))
    read(file)
    with pytest.raises(DataError, match="longer than its header says"):
        read(change(file, DIM + 6, "h", SHAPE[2] - 1))


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_little_padding_is_allowed(tmp_path: Path, ending: str) -> None:
    file = write_nifti(tmp_path / f"image{ending}", random_image(0))
    content = gzip.decompress(file.read_bytes()) if ending == ".nii.gz" else file.read_bytes()
    pack = gzip.compress if ending == ".nii.gz" else bytes
    file.write_bytes(pack(content + bytes(512)))
    np.testing.assert_array_equal(read(file).array[0], random_image(0))
    file.write_bytes(pack(content + bytes(10_000)))
    with pytest.raises(DataError, match="longer than its header says"):
        read(file)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    "dims", [(3, 2000, 2000, 2000), (4, 12, 10, 8, 32767), (3, 32767, 32767, 32767)]
)
def test_a_small_file_with_a_huge_header_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch, ending: str, dims
) -> None:
    file = change(
        write_nifti(tmp_path / f"image{ending}", random_image(0)), DIM, f"{len(dims)}h", *dims
    )
    monkeypatch.setattr("factorizer.data.images.read_voxels", read_nothing)
    with pytest.raises(
        DataError, match=r"cut short, or its header is wrong: .* holds at most|holds 32767 channels"
    ):
        read(file)


def read_nothing(*_: object) -> None:
    pytest.fail("voxels were read")


def test_all_channels_are_checked_before_any_is_read(tmp_path: Path, monkeypatch) -> None:
    first = write_nifti(tmp_path / "first.nii.gz", random_image(0))
    second = write_nifti(tmp_path / "second.nii.gz", np.zeros((64, 64, 64), np.uint8))
    monkeypatch.setattr("factorizer.data.images.read_voxels", read_nothing)
    with pytest.raises(DataError, match="channel B is not on the grid of A: its shape is"):
        read_image(Case("case", {"A": Source(first), "B": Source(second)}))


def test_an_image_beyond_memory_is_refused_before_it_is_read(tmp_path: Path, monkeypatch) -> None:
    file = write_nifti(tmp_path / "image.nii.gz", random_image(0))
    monkeypatch.setattr("factorizer.data.images.read_voxels", read_nothing)
    monkeypatch.setattr(capacity, "usable_bytes", lambda: 1000.0)
    with pytest.raises(DataError, match=r"reading its image takes about .* GiB are free"):
        read(file)


def test_a_large_empty_image_is_refused_before_it_is_read(tmp_path: Path, monkeypatch) -> None:
    header = nibabel.Nifti1Image(np.zeros((1, 1, 2), np.uint8), np.eye(4)).header
    header.set_data_shape((900, 900, 900))
    header["vox_offset"] = 352
    padding = bytes(900**3 // 900)  # the size of the file could be right
    (tmp_path / "image.nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(4)) + padding)
    monkeypatch.setattr("factorizer.data.images.read_voxels", read_nothing)
    with pytest.raises(DataError, match="times smaller: it is empty"):
        read(tmp_path / "image.nii.gz")


def test_memory_that_runs_out_is_a_problem_of_the_file(tmp_path: Path, monkeypatch) -> None:
    file = write_nifti(tmp_path / "image.nii.gz", random_image(0))

    def run_out(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("factorizer.data.nifti.ArrayProxy", run_out)
    with pytest.raises(DataError, match=r"image\.nii\.gz: it needs more memory than is available"):
        read(file)


def with_extensions(file: Path, *sizes: int, content: bytes = b"") -> Path:
    """A file with header extensions that claim these sizes."""
    whole = nibabel.Nifti1Image(random_image(0), AFFINE).to_bytes()
    head, voxels = bytearray(whole[:SIZE_OF_HEADER]), whole[SIZE_OF_HEADER + 4 :]
    blocks = b""
    for size in sizes:
        length = max(8, size - 8) if size < 1000 else 8
        blocks += struct.pack("<ii", size, 6) + content.ljust(length, b"\0")
    struct.pack_into("<f", head, VOX_OFFSET, SIZE_OF_HEADER + 4 + len(blocks))
    file.write_bytes(bytes(head) + b"\1\0\0\0" + blocks + voxels)
    return file


def test_predictions_keep_header_extensions(tmp_path: Path) -> None:
    file = with_extensions(tmp_path / "image.nii", 32, content=b"a comment")
    np.testing.assert_array_equal(read_voxels(read_header("case", file)), random_image(0))
    (tmp_path / "labels.nii.gz").write_bytes(encode_nifti(np.ones(SHAPE, np.uint8), file))
    (extension,) = nibabel.load(tmp_path / "labels.nii.gz").header.extensions
    assert extension.get_content() == b"a comment"


@pytest.mark.parametrize("sizes", [(0,), (-16,), (2**31 - 1,), (32, 0), (16,) * 5000])
def test_impossible_header_extensions_are_refused(tmp_path: Path, sizes) -> None:
    with pytest.raises(DataError, match=r"image\.nii: header extension \d+ has .* bytes"):
        read(with_extensions(tmp_path / "image.nii", *sizes))


def test_voxels_that_begin_far_away_are_refused(tmp_path: Path) -> None:
    file = change(write_nifti(tmp_path / "image.nii.gz", random_image(0)), VOX_OFFSET, "f", 2.0**30)
    with pytest.raises(DataError, match="voxels begin at byte 1073741824"):
        read(file)


def test_a_header_with_voxels_in_another_file_is_refused(tmp_path: Path) -> None:
    file = change(write_nifti(tmp_path / "image.nii", random_image(0)), 344, "4s", b"ni1\0")
    with pytest.raises(DataError, match="the voxels are in another file"):
        read(file)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    for name in ("image.nii", "image.nii.gz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match="it is not a regular file"):
            read(tmp_path / name)
    (tmp_path / "folder.nii.gz").mkdir()
    with pytest.raises(DataError, match="it is not a regular file"):
        read(tmp_path / "folder.nii.gz")
    (tmp_path / "link.nii.gz").symlink_to(write_nifti(tmp_path / "real.nii.gz", random_image(0)))
    read(tmp_path / "link.nii.gz")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_both_versions_and_byte_orders_are_read_as_nibabel_does(
    tmp_path: Path, order: str, kind, ending: str
) -> None:
    array = (100 * random_image(0)).astype(np.int16)
    header = kind.header_class(endianness=order)
    header.set_data_dtype(np.int16)
    image = kind(array, AFFINE, header)
    image.header.set_slope_inter(0.37, -3)
    nibabel.save(image, tmp_path / f"image{ending}")
    nifti = read_header("case", tmp_path / f"image{ending}")
    expected = nibabel.load(tmp_path / f"image{ending}")
    np.testing.assert_array_equal(read_voxels(nifti), np.asanyarray(expected.dataobj))
    np.testing.assert_array_equal(nifti.affine_mm, expected.affine)
