"""The layout of 2D images beside their masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from factorizer.data.cases import DataError
from factorizer.data.images import read_image, read_label
from factorizer.data.layouts import read_cohort
from factorizer.data.pictures import read_mask, read_picture
from testkit.writing import random_label, write_pairs


def test_pairs(tmp_path: Path) -> None:
    cohort = read_cohort(write_pairs(tmp_path))
    assert cohort.layout == "pairs"
    assert [case.owner for case in cohort.cases] == ["Image_01", "Image_01", "Image_02"]
    image = read_image(cohort.cases[0])
    assert image.array.shape == (3, 20, 30)
    label = read_label(cohort.cases[0], cohort.label_values, image.grid)
    assert set(np.unique(label)) == {0, 1}  # 255 on disk


def test_another_suffix_must_be_given(tmp_path: Path) -> None:
    write_pairs(tmp_path, suffix="-vessels")
    with pytest.raises(DataError, match="no known layout"):
        read_cohort(tmp_path)
    assert len(read_cohort(tmp_path, mask_suffix="-vessels").cases) == 3


def test_grey_images_may_have_16_bits(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 60_000, (20, 30)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    Image.fromarray(255 * random_label(0, (0, 1), (20, 30))).save(tmp_path / "a_mask.png")
    cohort = read_cohort(tmp_path)
    assert cohort.channels == ("grey",)
    np.testing.assert_array_equal(read_image(cohort.cases[0]).array[0], deep)


@pytest.mark.parametrize("mode", ["P", "RGB", "1"])
def test_masks_may_have_a_palette_or_colours_or_one_bit(tmp_path: Path, mode: str) -> None:
    write_pairs(tmp_path, names=["a"])
    wanted = random_label(5, (0, 1), (20, 30))
    if mode == "P":
        mask = Image.fromarray(wanted, mode="P")
        mask.putpalette([0, 0, 0, 0, 255, 0])
    else:
        green = np.stack((0 * wanted, 255 * wanted, 0 * wanted), -1)
        mask = (
            Image.fromarray(green) if mode == "RGB" else Image.fromarray(255 * wanted).convert("1")
        )
    mask.save(tmp_path / "a_1stHO.png")
    (case,) = read_cohort(tmp_path).cases
    label = read_label(case, read_cohort(tmp_path).label_values, read_image(case).grid)
    np.testing.assert_array_equal(label, wanted)


def test_masks_of_16_bits_keep_their_classes(tmp_path: Path) -> None:
    values = np.array([[0, 1], [2, 1]])
    Image.fromarray(values.astype(np.uint16)).save(tmp_path / "classes.png")
    kept = read_mask("a", tmp_path / "classes.png")
    np.testing.assert_array_equal(kept, values)
    Image.fromarray(300 * values.astype(np.uint16)).save(tmp_path / "drawn.png")
    foreground = read_mask("b", tmp_path / "drawn.png")
    np.testing.assert_array_equal(foreground, values > 0)


def test_masks_of_a_second_observer_are_not_images(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    for name in ("Image_01L", "Image_01R", "Image_02L"):
        Image.fromarray(random_label(0, (0, 255), (20, 30))).save(tmp_path / f"{name}_2ndHO.png")
    cohort = read_cohort(tmp_path)
    assert len(cohort.cases) == 3
    assert cohort.problems == ()


def test_a_jpeg_mask_is_cut_at_half_brightness(tmp_path: Path) -> None:
    file = tmp_path / "m_1stHO.jpg"
    wanted = np.zeros((64, 64), bool)
    wanted[10:40, 20:50] = True
    for mode in ("L", "RGB"):
        drawn = Image.fromarray(255 * wanted.astype(np.uint8)).convert(mode)
        drawn.save(file, quality=60)
        assert len(np.unique(read_picture("m", file))) > 2  # the compression adds values
        np.testing.assert_array_equal(read_mask("m", file) > 0, wanted)


def test_masks_with_several_classes_are_refused(tmp_path: Path) -> None:
    cohort = read_cohort(write_pairs(tmp_path))
    case = cohort.cases[0]
    assert case.label is not None
    Image.fromarray(random_label(0, (0, 1, 2), (20, 30))).save(case.label)
    with pytest.raises(DataError, match="0, 1, 2 look like several classes"):
        read_label(case, cohort.label_values, read_image(case).grid)


def test_masks_with_several_suffixes_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    Image.fromarray(random_label(0, (0, 255), (20, 30))).save(tmp_path / "Image_01L_mask.png")
    with pytest.raises(DataError, match="NAME_1stHO and NAME_mask; set mask_suffix to"):
        read_cohort(tmp_path)
    assert len(read_cohort(tmp_path, mask_suffix="_1stHO").cases) == 3
