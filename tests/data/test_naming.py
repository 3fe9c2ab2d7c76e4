"""Cases, channels and patients in the names of files."""

from __future__ import annotations

import pytest

from factorizer.data.naming import patient_of, patient_of_eye, split_channel, strip_mask_suffix


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("p1_dwi", ("p1", "DWI")),
        ("p1-ADC", ("p1", "ADC")),
        ("p1.t1ce", ("p1", "T1Gd")),
        ("p_1_T1w", ("p_1", "T1")),
        ("p1_ct_1", ("p1", "CT_1")),
        ("p1_dwi_b1000", None),
        ("dwi", None),
        ("_dwi", None),
        ("p1_flair", None),
    ],
)
def test_a_channel_ends_a_name(stem: str, expected: tuple[str, str] | None) -> None:
    assert split_channel(stem, ("DWI", "ADC", "T1", "T1Gd", "CT_1")) == expected


def test_a_mask_is_named_after_its_image() -> None:
    assert strip_mask_suffix("p1_SEG") == "p1"
    assert strip_mask_suffix("p1") == "p1"
    assert strip_mask_suffix("_seg") == "_seg"


def test_patients_of_bids_names() -> None:
    assert patient_of("sub-01_ses-02") == "sub-01"
    assert patient_of("sub-01") == ""


def test_both_eyes_are_of_one_patient() -> None:
    assert patient_of_eye("Image_01L") == patient_of_eye("Image_01R") == "Image_01"
    assert patient_of_eye("ImageL") == "ImageL"
