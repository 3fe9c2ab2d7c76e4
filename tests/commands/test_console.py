"""Names of others on the terminal: never markup, never what steers it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from factorizer.bars import make_bars
from factorizer.cli import app
from factorizer.commands import console
from factorizer.commands.console import (
    add_cells,
    make_table,
    print_line,
    print_problem,
    print_table,
    print_text,
)
from factorizer.commands.program import reported_errors
from factorizer.data.cases import Problem
from factorizer.errors import FactorizerError
from factorizer.evaluation.scores import Score
from factorizer.preset_files import load_preset, parse_preset, to_yaml
from factorizer.terminal import say
from testkit.writing import write_nifti

HOSTILE = "[/x] [red] :bug: \x1b]0;title\x07\x1b[2J\u202etxt"
SHOWN = "[/x] [red] :bug: \\x1b]0;title\\x07\\x1b[2J\\u202etxt"


def test_lines_tables_and_errors_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    print_text(HOSTILE)
    print_problem(Problem(HOSTILE, HOSTILE, "wrong", "fix it"))
    table = make_table([HOSTILE], title=HOSTILE)
    add_cells(table, [HOSTILE])
    print_table(table)
    print_table(console.scores_table([Score("a", HOSTILE, "dice", 0.5)]))
    with pytest.raises(typer.Exit), reported_errors():
        raise FactorizerError(HOSTILE)
    printed = "".join(capsys.readouterr())
    assert printed.count(SHOWN) == 8
    assert "\x1b" not in printed


def test_lines_with_markup_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("[bold]a\x1b[31mb[/]")
    assert capsys.readouterr().out == "a\\x1b[31mb\n"


def test_a_bar_shows_the_name_of_a_case_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = make_bars()
    row = bars.add_task(HOSTILE, total=1, state="")
    shown = bars.columns[0].render(bars.tasks[row])
    assert shown.plain == SHOWN


def test_a_region_with_markup_in_its_name_is_evaluated(tmp_path: Path) -> None:
    text = (
        "title: t\n"
        "data: {channels: [T1], labels: {'[/x]': 1}, regions: {'[/x]': ['[/x]']}, "
        "patch_size: [8, 8, 8]}\n"
    )
    (tmp_path / "p.yaml").write_text(text)
    for folder in ("p", "r"):
        write_nifti(tmp_path / folder / "[bold].nii.gz", np.ones((4, 4, 4), np.uint8))
    command = [
        "evaluate",
        "-p",
        str(tmp_path / "p"),
        "-r",
        str(tmp_path / "r"),
        "--preset",
        str(tmp_path / "p.yaml"),
    ]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "scores.csv")])
    assert result.exit_code == 0, result.output
    assert "[/x]" in result.stdout


def test_a_shown_preset_steers_no_terminal_and_reads_back_the_same() -> None:
    preset = load_preset("isles22").model_copy(update={"title": HOSTILE + " é"})
    text = to_yaml(preset)
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert parse_preset(text, "shown") == preset
    assert "é" in to_yaml(preset.model_copy(update={"title": "é"}))


def test_every_console_of_the_commands_is_the_safe_one() -> None:
    for file in Path(console.__file__).parent.glob("*.py"):
        text = file.read_text().replace("SafeConsole(", "")
        assert "Console(" not in text, file.name
    assert issubclass(console.SafeConsole, Console)
