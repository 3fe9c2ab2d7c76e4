"""The layout of the Medical Segmentation Decathlon."""

from __future__ import annotations

import json
from pathlib import Path

from factorizer.data.images import read_image
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import select_channels
from testkit.writing import write_msd


def test_the_decathlon(tmp_path: Path) -> None:
    cohort = read_cohort(write_msd(tmp_path))
    assert cohort.layout == "msd"
    assert cohort.channels == ("FLAIR", "T1", "T1Gd", "T2")
    assert cohort.labels == {"a": 1, "b": 2, "c": 3}
    assert [case.name for case in cohort.cases] == ["case_000", "case_001", "case_002"]
    assert cohort.problems == ()
    image = read_image(cohort.cases[0], ("T2", "FLAIR"))
    assert image.array.shape == (2, 12, 10, 8)


def test_one_channel_has_no_fourth_axis(tmp_path: Path) -> None:
    cohort = read_cohort(write_msd(tmp_path, channels=["MRI"], labels=["Anterior", "Posterior"]))
    assert read_image(cohort.cases[0]).array.shape == (1, 12, 10, 8)
    assert select_channels(cohort, ["T1"]) == ("MRI",)  # the only channel matches any name


def test_a_case_listed_twice_is_a_problem(tmp_path: Path) -> None:
    write_msd(tmp_path, cases=2)
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["training"].append(description["training"][0])
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    cohort = read_cohort(tmp_path)
    assert [case.name for case in cohort.cases] == ["case_001"]
    (problem,) = cohort.problems
    assert problem.case == "case_000"
    assert "stands for 2 cases" in problem.message
