"""Comparisons: statistics against scipy, tables, rankings, files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap, wilcoxon
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.compare import AVERAGE, Entry, compare_entries, rank
from factorizer.evaluation.scores import Score, write_scores
from factorizer.evaluation.statistics import (
    bootstrap_mean,
    compare_pairs,
    holm,
    rank_biserial,
    stars,
)
from factorizer.preset_files import change_preset, load_preset, to_yaml
from factorizer.reports.comparison import comparison_files
from factorizer.reports.notes import notes
from factorizer.reports.tables import body, latex_table, markdown_mark
from factorizer.studies.comparing import find_source
from testkit.writing import write_pairs

REGIONS = ("ET", "WT")


def scores(level: float, seed: int, cases: int = 30, noise: float = 0.02) -> list[Score]:
    """Dice around a level with the difficulty of cases in common, HD95 the other way."""
    difficulty = np.random.default_rng(0).uniform(-0.2, 0.1, cases)
    generator = np.random.default_rng(seed + 1)
    rows = []
    for number, shift in enumerate(difficulty):
        for region in REGIONS:
            dice = float(np.clip(level + shift + generator.normal(0, noise), 0, 1))
            rows.append(Score(f"case{number:02d}", region, "dice", dice))
            rows.append(Score(f"case{number:02d}", region, "hd95_mm", 40 * (1 - dice)))
    return rows


def entries() -> list[Entry]:
    return [
        Entry("good", scores(0.85, 1), 5.9, 174.2),
        Entry("equal", scores(0.85, 2), 28.7, 1152.5),
        Entry("bad", scores(0.70, 3)),
    ]


def test_tests_are_scipys() -> None:
    comparison = compare_entries(entries())
    for test in comparison.tests:
        pair = [comparison.values[test.metric, test.region, name] for name in ("good", test.other)]
        assert test.difference.p == pytest.approx(wilcoxon(*pair).pvalue, rel=1e-12)
        factor = 100 if test.metric == "dice" else 1  # as in the table
        assert test.difference.mean == pytest.approx(factor * (pair[0] - pair[1]).mean())
    dice = {t.other: t for t in comparison.tests if t.metric == "dice" and t.region == AVERAGE}
    assert stars(dice["bad"].corrected) == "****"
    assert stars(dice["equal"].corrected) == ""
    assert dice["bad"].difference.effect == 1
    raw = [dice[name].difference.p for name in ("equal", "bad")]
    assert [dice[name].corrected for name in ("equal", "bad")] == holm(raw)


def test_the_average_is_over_regions_within_a_case() -> None:
    comparison = compare_entries(entries())
    values = {(s.case, s.region): s.value for s in entries()[0].scores if s.metric == "dice"}
    means = [np.mean([values[case, region] for region in REGIONS]) for case in comparison.cases]
    np.testing.assert_allclose(comparison.values["dice", AVERAGE, "good"], means)


def test_zero_differences() -> None:
    same = compare_pairs([0.5, 0.6], [0.5, 0.6])
    assert (same.p, same.effect, same.mean) == (1, 0, 0)
    some = compare_pairs([1.0, 2.0, 3.5, 4.5, 9.0, 1.0], [1.0, 2.0, 3.0, 4.0, 8.0, 0.5])
    assert some.p == pytest.approx(wilcoxon([0.5, 0.5, 1.0, 0.5]).pvalue)
    assert compare_pairs([float("nan"), 1.0], [1.0, 0.5]).cases == 1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_rank_biserial_by_hand() -> None:
    assert rank_biserial(np.array([1.0, 2.0, -3.0, 0.0])) == pytest.approx((1 + 2 - 3) / 6)


def test_intervals_are_scipys() -> None:
    values = np.random.default_rng(0).normal(0.8, 0.1, 40)
    theirs = bootstrap(
        (values,), np.mean, n_resamples=10_000, method="percentile", random_state=0
    ).confidence_interval
    assert bootstrap_mean(values) == pytest.approx((theirs.low, theirs.high), abs=0.002)
    assert bootstrap_mean(values) == bootstrap_mean(values)


@pytest.mark.parametrize(
    ("p", "mark"), [(0.05, ""), (0.049, "*"), (0.0099, "**"), (0.00099, "***"), (9e-5, "****")]
)
def test_stars_are_the_papers(p: float, mark: str) -> None:
    assert stars(p) == mark


def test_a_ranking_shares_places_that_are_not_told_apart() -> None:
    places = {name: place for place, name, _ in rank(compare_entries(entries()))}
    assert places == {"good": 1, "equal": 1, "bad": 3}


def test_a_skewed_difference_makes_no_winner() -> None:
    """Most cases are a little better, a few much worse: ranks and mean disagree."""
    second = [s for s in scores(0.8, 1) if s.metric == "dice"]
    cases = sorted({s.case for s in second})
    change = {case: -0.5 if index < 4 else 0.02 for index, case in enumerate(cases)}
    first = [Score(s.case, s.region, s.metric, s.value + change[s.case]) for s in second]
    comparison = compare_entries([Entry("a", first), Entry("b", second)])
    assert comparison.tests[-1].corrected < 0.05
    assert [place for place, _, _ in rank(comparison)] == [1, 1]


def test_undefined_values_are_left_out_and_said(tmp_path: Path) -> None:
    def with_nan(rows: list[Score]) -> list[Score]:
        return [
            Score(s.case, s.region, s.metric, float("nan")) if s == rows[1] else s for s in rows
        ]

    comparison = compare_entries(
        [Entry("a", with_nan(scores(0.8, 1))), Entry("b", with_nan(scores(0.7, 2)))]
    )
    assert np.isfinite(comparison.mean("hd95_mm", "ET", "a"))
    assert all(content for content in comparison_files(comparison).values())
    assert "a: HD95 is undefined in 1 (one mask empty) and is left out" in notes(comparison)
    failing = with_nan(scores(0.8, 1))
    (missed,) = [s.case for s in failing if np.isnan(s.value)]
    one = compare_entries([Entry("a", failing), Entry("b", scores(0.8, 1))])
    assert one.mean("hd95_mm", "ET", "a") == one.mean(
        "hd95_mm", "ET", "b"
    )  # nothing is gained by failing in a case
    assert missed in one.cases
    assert any("means are over the 29 where every system has it" in line for line in notes(one))
    assert "HD95 is undefined (nan)" in str(comparison_files(one)["comparison.md"])
    fewer = compare_entries(
        [Entry("a", scores(0.8, 1)), Entry("b", [s for s in scores(0.7, 2) if s.region == "ET"])]
    )
    assert fewer.left_out["a"] == ["WT"]


def test_cases_of_one_patient_are_one_case_for_the_tests() -> None:
    """Copies of a case add nothing."""
    ours, theirs = scores(0.85, 1), scores(0.80, 2)
    copies = [
        [Score(f"{s.case}{side}", s.region, s.metric, s.value) for s in own for side in "LR"]
        for own in (ours, theirs)
    ]
    patients = {s.case: s.case[:-1] for s in copies[0]}
    once = compare_entries([Entry("a", ours), Entry("b", theirs)])
    twice = compare_entries([Entry("a", copies[0]), Entry("b", copies[1])])
    averaged = compare_entries([Entry("a", copies[0]), Entry("b", copies[1])], patients=patients)
    assert averaged.tests == once.tests
    assert averaged.cases == once.cases
    assert twice.tests[0].difference.p < once.tests[0].difference.p
    assert "30 patients with cases that all systems have" in str(
        comparison_files(averaged)["comparison.md"]
    )


def test_patients_are_read_from_the_data_set(tmp_path: Path) -> None:
    write_pairs(tmp_path / "eyes")  # Image_01L, Image_01R, Image_02L
    names = [case.name for case in read_cohort(tmp_path / "eyes").cases]
    for system, shift in (("a", 0.1), ("b", 0.0)):
        rows = [
            Score(name, "vessel", "dice", shift + 0.1 * index) for index, name in enumerate(names)
        ]
        write_scores(tmp_path / f"{system}.csv", rows)
    command = [
        "compare",
        str(tmp_path / "a.csv"),
        str(tmp_path / "b.csv"),
        "--data",
        str(tmp_path / "eyes"),
        "--json",
    ]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["patients"] == ["Image_01", "Image_02"]
    write_scores(tmp_path / "a.csv", [Score("Image_09", "vessel", "dice", 1.0)])
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "other")])
    assert "Image_09 is not in" in " ".join(result.stderr.split())


def test_tables_without_dice_are_compared_by_what_they_have() -> None:
    def distances(level: float, seed: int) -> list[Score]:
        return [s for s in scores(level, seed) if s.metric == "hd95_mm"]

    comparison = compare_entries(
        [Entry("a", distances(0.8, 1), 1, 2), Entry("b", distances(0.6, 2), 1, 2)]
    )
    assert [(place, name) for place, name, _ in rank(comparison)] == [(1, "a"), (2, "b")]
    files = comparison_files(comparison)
    assert "Ranking by mean HD95" in str(files["comparison.md"])
    assert "cost.png" not in files


def test_names_of_sources(tmp_path: Path) -> None:
    for folder in ("lr=0.01/fold0", "folder1"):
        (tmp_path / folder).mkdir(parents=True)
        write_scores(tmp_path / folder / "scores.csv", scores(0.8, 1))
    assert find_source(tmp_path / "lr=0.01" / "fold0").name == "lr=0.01"
    assert find_source(tmp_path / "folder1").name == "folder1"
    command = [
        "compare",
        f"net[v2]={tmp_path / 'folder1'}",
        f"b[/x]={tmp_path / 'folder1'}",
        "-o",
        str(tmp_path / "o"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "net[v2]" in result.stdout


def test_only_shared_cases_count_and_the_rest_is_listed() -> None:
    first, second = scores(0.8, 1), [s for s in scores(0.8, 2) if s.case != "case03"]
    first = [s for s in first if (s.case, s.region) != ("case05", "ET")]
    comparison = compare_entries([Entry("a", first), Entry("b", second)])
    assert len(comparison.cases) == 28
    assert comparison.left_out == {"a": ["case03", "case05"], "b": ["case05"]}


def test_best_and_second_are_marked_and_ties_alike() -> None:
    same = [
        Entry("a", scores(0.8, 1)),
        Entry("b", scores(0.8, 1)),
        Entry("c", scores(0.7, 1)),
        Entry("d", scores(0.6, 1)),
    ]
    rows = body(compare_entries(same), markdown_mark)
    column = [row[3] for row in rows]
    assert column[0] == column[1]
    assert column[0].startswith("**")
    assert column[2].startswith("<u>")
    assert column[3][0].isdigit()
    hd95 = [row[6] for row in rows]
    assert hd95[0].startswith("**")  # less is better


def test_latex() -> None:
    text = latex_table(compare_entries(entries()))
    assert text.count(r"\textbf") == 6
    assert r"Dice (\%) $\uparrow$" in text
    assert r"good & 5.9M & 174.2G" in text
    assert text.count("&") == 3 * 8 + 8 + 4


def test_the_command_line(tmp_path: Path) -> None:
    run = tmp_path / "swin"
    (run / "fold0").mkdir(parents=True)
    preset = change_preset(
        load_preset("isles22"), ["data.patch_size=[32,32,32]", "model.widths=[8,16]"]
    )
    (run / "fold0" / "config.yaml").write_text(to_yaml(preset))
    write_scores(run / "scores.csv", scores(0.85, 1))
    other = tmp_path / "unet" / "fold0"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text(to_yaml(change_preset(preset, ["model.name=nnunet"])))
    write_scores(other / "scores.csv", scores(0.7, 2))
    command = ["compare", str(run), f"other={other}", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {
        "table.csv",
        "table.tex",
        "tests.csv",
        "comparison.md",
        "dice.png",
        "hd95_mm.png",
        "cost.png",
    }
    with (tmp_path / "out" / "tests.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["other"] for row in rows} == {"other"}
    assert {row["model"] for row in rows} == {"swin"}
    assert len(rows) == 2 * 3
    assert "****" in result.stdout
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "is not an empty folder" in again.stderr
    as_json = CliRunner().invoke(
        app, [*command[:-1], str(tmp_path / "two"), "--json", "--reference-system", "other"]
    )
    assert json.loads(as_json.stdout)["reference"] == "other"


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no scores\.csv; give a finished run"):
        find_source(tmp_path)
    with pytest.raises(ValueError, match="give each another name"):
        compare_entries([entries()[0], entries()[0]])
    with pytest.raises(ValueError, match="there is no system 'x'; choose one of good, equal, bad"):
        compare_entries(entries(), reference="x")
    other = [Score("elsewhere", "ET", "dice", 1.0)]
    with pytest.raises(ValueError, match="share no case"):
        compare_entries([entries()[0], Entry("other", other)])
