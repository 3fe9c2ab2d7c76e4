"""The channels of a file, from its header alone."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from factorizer.data.headers import count_channels, name_channels
from testkit.writing import write_nifti


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("shape", "count"), [((4, 5, 6), 1), ((4, 5, 6, 3), 3), ((4, 5, 6, 1), 1), ((2, 2, 2, 99), 1)]
)
def test_channels_of_volumes(
    tmp_path: Path, kind: type, order: str, shape: tuple[int, ...], count: int
) -> None:
    header = kind.header_class(endianness=order)
    image = kind(np.zeros(shape, np.float32), np.eye(4), header)
    for name in ("a.nii", "a.nii.gz"):
        nibabel.save(image, tmp_path / name)
        assert count_channels(tmp_path / name) == count


def test_channels_of_2d_images(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(tmp_path / "b.png")
    assert name_channels(tmp_path / "a.png") == ("red", "green", "blue")
    assert name_channels(tmp_path / "b.png") == ("grey",)


def test_a_file_that_cannot_be_opened_has_one_channel(tmp_path: Path) -> None:
    (tmp_path / "a.nii").write_bytes(b"\x5c\x01")
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(b"\x5c\x01\x00\x00" * 200)[:20])
    (tmp_path / "c.nii.gz").write_bytes(b"\x1f\x8b\x08\x00 not gzip")
    for name in ("a.nii", "b.nii.gz", "c.nii.gz", "nowhere.nii"):
        assert count_channels(tmp_path / name) == 1
    write_nifti(tmp_path / "whole.nii.gz", np.zeros((3, 3, 3, 2), np.float32))
    assert name_channels(tmp_path / "whole.nii.gz") == ("image0", "image1")


def test_a_2d_image_that_cannot_be_opened_has_three_channels(tmp_path: Path, monkeypatch) -> None:
    script = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    (tmp_path / "a.png").write_text(script)
    assert name_channels(tmp_path / "a.png") == ("red", "green", "blue")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)  # the next image is larger than PIL allows
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(tmp_path / "b.png")
    assert name_channels(tmp_path / "b.png") == ("red", "green", "blue")
