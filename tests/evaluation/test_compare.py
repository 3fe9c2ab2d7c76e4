"""Comparisons: statistics against scipy, tables, rankings, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap, wilcoxon

from factorizer.evaluation.compare import AVERAGE, Entry, compare_entries, rank
from factorizer.evaluation.scores import Score
from factorizer.evaluation.statistics import (
    bootstrap_mean,
    compare_pairs,
    holm,
    rank_biserial,
    stars,
)
from factorizer.reports.comparison import comparison_files
from factorizer.reports.notes import notes
from factorizer.studies.comparing import find_source
from testkit.invented import REGIONS, entries, scores


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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_only_shared_cases_count_and_the_rest_is_listed() -> None:
    first, second = scores(0.8, 1), [s for s in scores(0.8, 2) if s.case != "case03"]
    first = [s for s in first if (s.case, s.region) != ("case05", "ET")]
    comparison = compare_entries([Entry("a", first), Entry("b", second)])
    assert len(comparison.cases) == 28
    assert comparison.left_out == {"a": ["case03", "case05"], "b": ["case05"]}


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no scores\.csv; give a finished run"):
        find_source(tmp_path)
    with pytest.raises(ValueError, match="give each its own name"):
        compare_entries([entries()[0], entries()[0]])
    with pytest.raises(ValueError, match="there is no system 'x'; choose one of good, equal, bad"):
        compare_entries(entries(), reference="x")
    other = [Score("elsewhere", "ET", "dice", 1.0)]
    with pytest.raises(ValueError, match="share no case"):
        compare_entries([entries()[0], Entry("other", other)])
