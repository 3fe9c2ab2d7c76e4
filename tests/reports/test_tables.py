"""The tables of a comparison."""

from __future__ import annotations

from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.reports.tables import body, latex_table, markdown_mark
from testkit.invented import entries, scores


def test_best_and_second_are_marked_and_ties_have_the_same_mark() -> None:
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
