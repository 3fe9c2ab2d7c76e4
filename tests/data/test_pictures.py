"""2D images: their formats, and files that are too large or not images."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from factorizer.data.cases import Case, DataError, Source
from factorizer.data.headers import count_channels
from factorizer.data.images import read_image
from factorizer.data.pictures import read_mask, read_picture

PICTURE = np.random.default_rng(0).integers(1, 256, (6, 8, 3)).astype(np.uint8)


def write_empty_png(file: Path, width: int, height: int) -> Path:
    """A PNG of this size without its pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    file.write_bytes(
        b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )
    return file


@pytest.mark.parametrize("ending", [".png", ".tif", ".tiff"])
def test_2d_images_are_read_unchanged(tmp_path: Path, ending: str) -> None:
    Image.fromarray(PICTURE).save(tmp_path / f"a{ending}")
    np.testing.assert_array_equal(read_picture("a", tmp_path / f"a{ending}"), PICTURE)
    case = Case(
        "a", {name: Source(tmp_path / f"a{ending}", index, 3) for index, name in enumerate("RGB")}
    )
    np.testing.assert_array_equal(read_image(case).array, np.moveaxis(PICTURE, -1, 0))


@pytest.mark.parametrize(
    "size", [(10_000, 10_000), (30_000, 30_000)]
)  # PIL warns of the first, and refuses the other
def test_a_2d_image_with_too_many_pixels_is_named(tmp_path: Path, size) -> None:
    file = write_empty_png(tmp_path / "large.png", *size)
    for read in (read_picture, read_mask):
        with pytest.raises(DataError, match=r"large\.png: .*it has more than 89,478,485 pixels"):
            read("large", file)
    with pytest.raises(DataError, match=r"large\.png: .*it has more than 89,478,485 pixels"):
        read_image(
            Case("large", {name: Source(file, index, 3) for index, name in enumerate("RGB")})
        )
    assert count_channels(file) == 3


@pytest.mark.parametrize("kind", ["EPS", "GIF", "BMP", "PPM"])
def test_only_supported_formats_are_opened(tmp_path: Path, monkeypatch, kind: str) -> None:
    """PostScript would be given to Ghostscript."""
    Image.init()
    monkeypatch.setattr(
        "PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started")
    )
    Image.fromarray(PICTURE).save(tmp_path / "a.png", format=kind)
    for read in (read_picture, read_mask):
        with pytest.raises(DataError, match=r"a\.png: .*it is not a PNG, JPEG or TIFF file"):
            read("a", tmp_path / "a.png")
    assert count_channels(tmp_path / "a.png") == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match="it is not a regular file"):
        read_picture("a", tmp_path / "a.png")
    assert count_channels(tmp_path / "a.png") == 3


@pytest.mark.parametrize("ending", [".png", ".jpg", ".tif"])
def test_a_damaged_2d_image_gives_at_most_one_error(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a{ending}"
    Image.fromarray(PICTURE).save(file)
    whole, generator = file.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(40):
        content = bytearray(whole)
        for place in generator.integers(0, len(whole), 3):
            content[place] = generator.integers(256)
        file.write_bytes(content)
        try:
            read_picture("a", file)
        except DataError:  # nothing else may come out
            refused += 1
    assert refused
