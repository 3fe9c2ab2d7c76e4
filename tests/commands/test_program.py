"""Errors tell whose fault it is, on standard error and by the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from factorizer import cli
from factorizer.commands.program import BUG, SOME_FAILED, USER_ERROR, exit_for
from factorizer.data.attempts import attempt
from factorizer.data.cases import DataError, Problem
from factorizer.errors import FactorizerError

runner = CliRunner()


def test_an_error_of_the_user_is_one_line() -> None:
    result = runner.invoke(cli.app, ["presets", "show", "no-such-preset"])
    assert result.exit_code == USER_ERROR
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "--modle", "x"], "No such option: --modle (Possible options: --model)"),
        (["predict"], "Missing option '--model'"),
        (["nonsense"], "No such command 'nonsense'"),
        (["--nonsense"], "No such option: --nonsense"),
        (["presets", "show"], "Missing argument 'PRESET'"),
    ],
)
def test_a_wrong_command_line_is_one_line(words: list[str], said: str) -> None:
    result = runner.invoke(cli.app, words)
    assert result.exit_code == USER_ERROR
    assert result.stderr.startswith(f"Error: {said}; see ")
    assert result.stderr.endswith(" --help\n")
    assert result.stderr.count("\n") == 1


def test_without_words_the_help_is_shown() -> None:
    for words in ([], ["figure"]):
        result = runner.invoke(cli.app, words)
        assert result.exit_code == USER_ERROR
        assert "Usage: " in result.output
        assert "Error" not in result.output


def test_debug_shows_the_traceback_wherever_it_stands() -> None:
    for words in (["--debug", "presets", "show", "x"], ["presets", "show", "x", "--debug"]):
        result = runner.invoke(cli.app, words)
        assert result.exit_code == USER_ERROR
        assert "Traceback" in result.stderr
        assert "PresetError" in result.stderr


@pytest.mark.parametrize(
    "error", [KeyError("region"), ValueError("zip() argument 2 is longer"), TypeError("None")]
)
def test_every_other_error_is_called_a_bug(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("factorizer.preset_files.load_preset", fail)
    result = runner.invoke(cli.app, ["presets", "show", "brats"])
    assert result.exit_code == BUG
    assert result.stderr.startswith(f"Bug: {type(error).__name__}")
    (report,) = tmp_path.glob("factorizer-bug-*.txt")
    assert str(report) in result.stderr.replace("\n", "")
    text = report.read_text()
    assert "Traceback" in text
    assert "factorizer 0." in text


def test_a_bug_in_one_case_is_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result, problems = attempt("case7", lambda: {}["missing"])
    assert result is None
    assert [problem.severity for problem in problems] == ["bug"]
    assert len(list(tmp_path.glob("factorizer-bug-*.txt"))) == 1
    assert attempt("case7", lambda: 3) == (3, [])


def test_debug_shows_the_traceback_of_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        attempt(name, lambda: {}["missing"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("factorizer.preset_files.load_preset", fail)
    for words, shown in (([], False), (["--debug"], True)):
        said = runner.invoke(cli.app, ["presets", "show", "case7", *words]).stderr
        assert ("the case case7 failed\nTraceback" in said) == shown
        assert ("KeyError: 'missing'" in said.partition("Bug:")[0]) == shown


def test_the_same_bug_in_many_cases_has_one_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise KeyError("region")

    monkeypatch.chdir(tmp_path)
    for number in range(5):
        assert attempt(f"case{number}", fail)[1]
    assert len(list(tmp_path.glob("factorizer-bug-*.txt"))) == 1


def test_an_error_of_one_case_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = Problem("case7", "a.nii.gz", "it is empty", "replace it")

    def data_error() -> None:
        raise DataError(problem)

    def user_error() -> None:
        raise FactorizerError("the window is too large")

    def system_error() -> None:
        raise PermissionError(13, "Permission denied", "a.nii.gz")

    def no_memory() -> None:
        raise MemoryError

    assert attempt("case7", data_error) == (None, [problem])
    for work in (user_error, system_error, no_memory):
        _, (found,) = attempt("case7", work)
        assert found.severity == "error"
        assert found.case == "case7"
    assert not list(tmp_path.iterdir())


def test_the_exit_code_tells_bugs_from_errors() -> None:
    warning, error, bug = (
        Problem("a", "", "m", "r", severity) for severity in ("warning", "error", "bug")
    )
    exit_for([])
    exit_for([warning])
    for problems, code in (([warning, error], SOME_FAILED), ([error, bug], BUG)):
        with pytest.raises(typer.Exit) as end:
            exit_for(problems)
        assert end.value.exit_code == code
