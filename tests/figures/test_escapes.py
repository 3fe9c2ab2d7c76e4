"""Names of others in our files: read back by parsers of the formats, they are what they were."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.evaluation.scores import Score, write_scores
from factorizer.figures.escapes import escape_cell, escape_label, escape_latex, escape_markdown
from factorizer.reports.comparison import comparison_files
from factorizer.reports.tables import latex_table, with_prefix

HOSTILE = [
    "<script>alert(1)</script>",
    "a | b",
    "[x](http://evil)",
    "![x](y)",
    "**bold** _under_ `code` ~~gone~~",
    "a\\|b",
    "&lt; &amp;",
    "1. first",
    "# heading",
    "- item",
    "+ item",
    "$x^2$",
    "a\\",
    "{a} 100 % ~ ^ # & _",
]


def text_of(html: str) -> str:
    plain = re.sub(r"<[^>]*>", "", html)
    return (
        plain.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_name_as_it_is(name: str) -> None:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    safe = escape_markdown(name)
    html = parser.render(f"| {safe} | b |\n| --- | --- |\n| {safe} | 2 |\n")
    assert (
        re.findall(r"<(?:td|th)>(.*)</(?:td|th)>", html)[0] == re.findall(r"<td>(.*)</td>", html)[0]
    )
    assert text_of(re.findall(r"<td>(.*)</td>", html)[0]) == name
    assert len(re.findall("<td>", html)) == 2
    listed = parser.render(f"- {safe}\n")
    assert re.fullmatch(r"<ul>\n<li>(.*)</li>\n</ul>\n", listed)
    assert text_of(listed).strip() == name
    assert (
        text_of(parser.render(f"## {safe} against the others\n")).strip()
        == f"{name} against the others"
    )


def test_ordinary_names_and_numbers_stay() -> None:
    for text in ("swin-factorizer", "run6", "+0.52", "-0.3", "1.5T", "0.2", "#Params"):
        assert escape_markdown(text) == text
    assert escape_markdown("a\nb\x1b[31m") == "a b\\\\x1b\\[31m"


@pytest.mark.parametrize("name", HOSTILE)
def test_latex_has_no_bare_special_character(name: str) -> None:
    known = r"\\text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\[%_&#${}]"
    rest = re.sub(known, "", escape_latex(name).removeprefix("{}"))
    assert not set(rest) & set("\\%_&#${}~^<>|")


def test_latex_by_hand() -> None:
    assert escape_latex(r"a_b~c^d\e{f}") == (
        r"a\_b\textasciitilde{}c\textasciicircum{}d\textbackslash{}e\{f\}"
    )
    assert [escape_latex(name) for name in ("[/x]", "*", "a[b]")] == ["{}[/x]", "{}*", "a[b]"]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\t=1"])
def test_a_spreadsheet_computes_no_name(name: str) -> None:
    assert escape_cell(name).startswith("'")
    assert escape_cell("a=1") == "a=1"


def entry(name: str) -> Entry:
    return Entry(
        name,
        [Score(f"c{i}", name, metric, 0.1 * i) for i in range(6) for metric in ("dice", "hd95_mm")],
    )


@pytest.mark.parametrize(
    "name", [*HOSTILE, "=1+1", "[/x]", "[red]", "\x1b[31mred", "_hidden", "a$b", "$\\frac$"]
)
def test_every_file_of_a_comparison_stands_hostile_names(name: str) -> None:
    other = Entry("other", entry(name).scores)
    files = comparison_files(compare_entries([entry(name), other]))
    assert "\x1b" not in "".join(content for content in files.values() if isinstance(content, str))
    assert "<script" not in str(files["comparison.md"])
    for table in ("table.csv", "tests.csv"):
        rows = list(csv.DictReader(io.StringIO(str(files[table]))))
        assert not any(
            row[column].startswith("=") for row in rows for column in ("model", "region")
        )
    latex = str(files["table.tex"])
    assert all(line.replace("\\&", "").count("&") in (0, 3, 4) for line in latex.splitlines())


def test_the_terminal_stands_them_too(tmp_path: Path) -> None:
    for name, file in (("[/x]", "a.csv"), ("plain", "b.csv")):
        rows = [Score("c\x1b]0;title\x07", "[/x]", "dice", 0.5), Score("d", "[/x]", "dice", 0.6)]
        write_scores(tmp_path / file, rows if name == "[/x]" else rows[1:])
    command = [
        "compare",
        f"[/x]={tmp_path / 'a.csv'}",
        f"\x1b[31m={tmp_path / 'b.csv'}",
        "-o",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout + result.stderr
    assert "Dice [/x]" in result.stdout
    assert "\\x1b[31m" in result.stdout
    assert "c\\x1b]0;title\\x07" in result.stderr


def test_labels_of_figures_are_no_formulas_and_are_not_hidden() -> None:
    assert escape_label("$x$") == r"\$x\$"
    assert escape_label("_x") == " _x"


@pytest.mark.parametrize(
    ("value", "largest", "text"),
    [
        (5.9e6, "M", "5.9M"),
        (28_700_000, "M", "28.7M"),
        (1152.5e9, "G", "1152.5G"),
        (15_040, "M", "15.0k"),
        (25.3e6, "G", "25.3M"),
        (950, "M", "950"),
    ],
)
def test_small_networks_have_a_size(value: float, largest: str, text: str) -> None:
    assert with_prefix(value, largest) == text


def test_a_small_network_in_the_table() -> None:
    small = Entry("small", entry("a").scores, 0.0123, 0.0004)
    assert "small & 12.3k & 400.0k" in latex_table(
        compare_entries([small, Entry("other", entry("a").scores)])
    )
