"""Lists of cases in CSV and JSON files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from factorizer.data.cases import DataError
from factorizer.data.check import check_cohort
from factorizer.data.folds import draw_folds
from factorizer.data.images import read_image, read_label
from factorizer.data.inputs import read_inputs
from factorizer.data.label_values import name_labels
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import select_channels, select_label_values
from factorizer.data.plan import plan_preset
from factorizer.targets import Targets
from testkit.writing import random_image, random_label, write_nifti

MANY_COLUMNS = ",".join(f"c{index}" for index in range(99))


def write_files(folder: Path, *names: str, labels: tuple[int, ...] = (0, 1)) -> None:
    for index, name in enumerate(names):
        write_nifti(folder / f"{name}_dwi.nii.gz", random_image(index))
        write_nifti(folder / f"{name}_adc.nii.gz", random_image(50 + index))
        write_nifti(folder / f"{name}_msk.nii.gz", random_label(index, labels))


def write_table(folder: Path, *names: str, header: str = "Case;DWI;adc;Label") -> Path:
    file = folder / "list.csv"
    rows = [f"{name};{name}_dwi.nii.gz;{name}_adc.nii.gz;{name}_msk.nii.gz" for name in names]
    file.write_text("\r\n".join([header, *rows]), encoding="utf-8-sig")
    return file


def test_a_table_is_a_cohort(tmp_path: Path) -> None:
    write_files(tmp_path, "a", "b", labels=(0, 1, 3))
    cohort = read_cohort(write_table(tmp_path, "a", "b"))
    assert (cohort.layout, cohort.channels) == ("list", ("DWI", "ADC"))
    assert cohort.problems == ()
    (a, b) = cohort.labelled
    assert a.channels["ADC"].file == tmp_path / "a_adc.nii.gz"
    assert b.label == tmp_path / "b_msk.nii.gz"
    report = check_cohort(cohort)
    assert report.errors == []
    assert report.labels == {"label1": 1, "label3": 3}


def test_a_planned_preset_reads_the_same_labels(tmp_path: Path) -> None:
    """Training reads the values that the names were made from, even if some cases lack one."""
    write_files(tmp_path, "a", "b", labels=(0, 1, 3))
    file = write_table(tmp_path, "a", "b")
    cohort = name_labels(read_cohort(file))
    planned = plan_preset(cohort, check_cohort(cohort)).preset.data
    assert dict(planned.labels) == {"label1": 1, "label3": 3}
    assert planned.channels == ("DWI", "ADC")
    write_nifti(tmp_path / "a_msk.nii.gz", random_label(0, (0, 3)))
    only = read_cohort(write_table(tmp_path, "a"))
    values = select_label_values(only, planned.labels)
    assert values == {0: 0, 1: 1, 3: 3}
    (case,) = only.cases
    assert set(np.unique(read_label(case, values, read_image(case).grid))) == {0, 3}
    write_nifti(tmp_path / "a_msk.nii.gz", random_label(0, (0, 2)))
    with pytest.raises(DataError, match="values that are not declared: 2"):
        read_label(case, values, read_image(case).grid)


@pytest.mark.parametrize("column", ["label", "MASK", "Seg"])
def test_the_column_of_labels_has_several_names(tmp_path: Path, column: str) -> None:
    write_files(tmp_path, "a")
    (case,) = read_cohort(write_table(tmp_path, "a", header=f"case;DWI;ADC;{column}")).labelled
    assert case.label == tmp_path / "a_msk.nii.gz"


def test_cases_of_a_patient_stay_in_a_fold(tmp_path: Path) -> None:
    entries = []
    for index in range(6):
        name = f"c{index}"
        write_files(tmp_path, name)
        files = {"dwi": f"{name}_dwi.nii.gz", "LABEL": f"{name}_msk.nii.gz"}
        entries.append({"Case": name, "Patient": index // 2} | files)
    (tmp_path / "list.json").write_text(json.dumps(entries))
    cohort = read_cohort(tmp_path / "list.json")
    assert cohort.channels == ("DWI",)
    assert [case.owner for case in cohort.cases] == ["0", "0", "1", "1", "2", "2"]
    for fold in draw_folds(cohort.labelled, num_folds=3, seed=0).values():
        assert len({cohort.case(name).owner for name in fold}) == 1


def test_channels_of_one_file_match_in_their_order(tmp_path: Path) -> None:
    write_nifti(tmp_path / "a.nii.gz", random_image(0, (12, 10, 8, 2)))
    write_nifti(tmp_path / "m.nii.gz", random_label(0, (0, 1)))
    (tmp_path / "list.csv").write_text("case,image,label\na,a.nii.gz,m.nii.gz\n")
    cohort = read_cohort(tmp_path / "list.csv")
    assert cohort.channels == ("image0", "image1")
    assert select_channels(cohort, ("DWI", "ADC")) == ("image0", "image1")
    targets = Targets({"lesion": 1}, {"lesion": ("lesion",)})
    assert check_cohort(cohort, channels=("DWI", "ADC"), targets=targets).errors == []
    message = "has the channels DWI, ADC, T1, and the data set has image0, image1"
    with pytest.raises(DataError, match=message):
        select_channels(cohort, ("DWI", "ADC", "T1"))


def test_names_of_channels_stay_as_written(tmp_path: Path) -> None:
    write_files(tmp_path, "a")
    cohort = read_cohort(write_table(tmp_path, "a", header="CASE;Cine MR;t1w;label"))
    assert cohort.channels == ("Cine MR", "T1")
    assert select_channels(cohort, ("CINE MR", "T1")) == ("Cine MR", "T1")


def test_columns_without_images_are_a_warning(tmp_path: Path) -> None:
    write_files(tmp_path, "a")
    (tmp_path / "list.csv").write_text("case,age,DWI,label,sex\na,61,a_dwi.nii.gz,a_msk.nii.gz,f\n")
    cohort = read_cohort(tmp_path / "list.csv")
    assert cohort.channels == ("DWI",)
    (warning,) = cohort.problems
    assert warning.severity == "warning"
    assert "the columns age, sex hold no image files" in str(warning)


def test_problems_name_the_line(tmp_path: Path) -> None:
    write_files(tmp_path, "a", "b", "c", "d")
    os.mkfifo(tmp_path / "pipe.nii.gz")
    (tmp_path / "list.csv").write_text(
        "case,DWI,ADC,label\n"
        "a,a_dwi.nii.gz,a_adc.nii.gz,a_msk.nii.gz\n"
        "b,b_dwi.nii.gz,,b_msk.nii.gz\n"
        "c,c_dwi.nii.gz,nowhere.nii.gz,c_msk.nii.gz\n"
        "d,d_dwi.nii.gz,d_adc.nii.gz,\n"
        "../e,a_dwi.nii.gz,a_adc.nii.gz,a_msk.nii.gz\n"
        "f,a_adc.nii.gz,a_dwi.nii.gz,a_msk.nii.gz\n"
        "g,pipe.nii.gz,a_adc.nii.gz,a_msk.nii.gz\n"
        ",a_dwi.nii.gz,a_adc.nii.gz,a_msk.nii.gz\n"
    )
    cohort = read_cohort(tmp_path / "list.csv")
    assert [case.name for case in cohort.cases] == ["a", "d"]
    assert [case.name for case in cohort.labelled] == ["a"]
    lines = "\n".join(map(str, cohort.problems))
    for expected in (
        "list.csv: line 3: b has no ADC; give each case the fields case, label",
        "nowhere.nii.gz: the file is missing (ADC, line 4 of list.csv); add it",
        "list.csv: line 5: d has no label; add it",
        "list.csv: line 6: ../e cannot be part of the name of a file; leave out slashes",
        "a_adc.nii.gz: it is named as ADC, but it is given as DWI",
        "pipe.nii.gz: it is not a file (DWI, line 8 of list.csv)",
        "list.csv: line 9: it has no case",
    ):
        assert expected in lines
    assert len(cohort.problems) == 7


def test_a_list_without_labels_is_a_warning(tmp_path: Path) -> None:
    write_files(tmp_path, "a")
    (tmp_path / "list.csv").write_text("case,DWI,ADC\na,a_dwi.nii.gz,a_adc.nii.gz\n")
    cohort = read_cohort(tmp_path / "list.csv")
    assert cohort.labelled == ()
    assert "no column label or mask or seg" in str(cohort.problems[0])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "", "it holds no list of cases"),
        ("x.csv", "case,label\na,m.nii.gz\n", "it has no column with images"),
        ("x.csv", "name,DWI\na,m.nii.gz\n", "its columns are name, DWI, and none is case"),
        ("x.csv", "case,DWI,dwi\na,b,c\n", "name each column once"),
        (
            "x.csv",
            "case,DWI,label,seg\na,a.nii.gz,b,c\n",
            "it has the columns label and seg; keep the one",
        ),
        ("x.csv", f"case,DWI\na,{'x' * 140_000}\n", "it is not a table"),
        ("x.csv", "case,DWI\na,b,c\n", "line 2 has 3 cells for 2 columns"),
        ("x.csv", f"case,{MANY_COLUMNS}\na" + ",b.nii" * 99, "at most 64 channels"),
        ("x.json", "[" * 200_000, "nested too deep"),
        ("x.json", "{", "it is not JSON"),
        ("x.json", "[]", "it holds no list of cases"),
        ("x.json", '["a"]', "it holds no list of cases"),
        ("x.json", '{"channel_names": {}}', "it describes a data set; give its folder"),
    ],
)
def test_hostile_lists_are_one_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_cohort(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"case": ["a"], "DWI": "a_dwi.nii.gz"}, "entry 1: case is"),
        ({"case": "a", "DWI": {"file": "a_dwi.nii.gz"}}, "entry 1: DWI is"),
        ({"case": "a\0b", "DWI": "a_dwi.nii.gz"}, "case has a control character"),
        ({"case": "a", "DWI": "\x1b[31m.nii.gz"}, "DWI has a control character"),
        ({"case": "a" * 300, "DWI": "a_dwi.nii.gz"}, "cannot be part of the name of a file"),
        ({"case": "a", "T1": "a_dwi.nii.gz", "t1w": "a_adc.nii.gz"}, "several fields are named T1"),
        ({"case": "a", "DWI": "list.json"}, "it is not an image"),
        ({"case": "a", "image": "."}, "it is not a file"),
    ],
)
def test_a_hostile_entry_is_named_and_the_others_are_kept(
    tmp_path: Path, entry: object, message: str
) -> None:
    write_files(tmp_path, "a")
    entries = [entry, {"case": "good", "DWI": "a_dwi.nii.gz"}]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    cohort = read_cohort(tmp_path / "list.json")
    assert [case.name for case in cohort.cases] == ["good"]
    assert message in "\n".join(map(str, cohort.problems))


def test_prediction_takes_the_same_list(tmp_path: Path) -> None:
    write_files(tmp_path, "a", "b")
    for channels in (("DWI", "ADC"), ("adc",)):
        cases, problems = read_inputs([write_table(tmp_path, "a", "b")], channels)
        assert problems == []
        assert [case.name for case in cases] == ["a", "b"]
        assert cases[0].label == tmp_path / "a_msk.nii.gz"
        assert tuple(cases[0].channels) == channels
