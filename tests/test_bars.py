"""Progress on a terminal and in a log file."""

from __future__ import annotations

import io

import pytest

from factorizer.bars import FIRST_LINE, LINE_EVERY, ConsoleProgress

HOSTILE = "[/x] [red] :bug: \x1b]0;title\x07\x1b[2J\u202etxt"
SHOWN = "[/x] [red] :bug: \\x1b]0;title\\x07\\x1b[2J\\u202etxt"


ERASE_LINE = "\x1b[2K"


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def become_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal. A fixture cannot: pytest replaces it after the set-up."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "400")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


def refresh(progress: ConsoleProgress) -> None:
    """Draw the bars now. They are drawn ten times a second otherwise."""
    assert progress.bars is not None
    progress.bars.refresh()


def test_a_terminal_shows_a_bar_that_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = become_terminal(monkeypatch)
    progress = ConsoleProgress()
    with progress.task("reading", total=4) as task:
        task.advance(3)
        task.update(state="loss 0.5")
        refresh(progress)
    shown = terminal.getvalue()
    assert "reading" in shown
    assert "3/4" in shown
    assert "loss 0.5" in shown
    assert shown.rpartition("loss 0.5")[2].count(ERASE_LINE) == 1
    assert progress.bars is None


def test_a_terminal_shows_the_time_left_of_a_task_without_a_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = become_terminal(monkeypatch)
    with ConsoleProgress().task("reading", total=4) as task:
        task.advance()
    assert "-:--:--" in terminal.getvalue()


def test_two_bars_are_shown_together_and_the_outer_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    become_terminal(monkeypatch)
    progress = ConsoleProgress()
    with progress.task("training", total=6) as outer:
        with progress.task("validating", total=2) as inner:
            inner.advance()
            assert progress.bars is not None
            assert [row.description for row in progress.bars.tasks] == ["training", "validating"]
        outer.advance()
        assert progress.bars is not None
        assert [row.description for row in progress.bars.tasks] == ["training"]
    assert progress.bars is None


def test_a_terminal_gets_lines_only_if_they_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = become_terminal(monkeypatch)
    clock = Clock()
    progress = ConsoleProgress(clock)
    with progress.task("reading", total=4) as task:
        clock.now += FIRST_LINE
        task.advance()
        progress.say("a remark")
    shown = terminal.getvalue()
    assert f"{ERASE_LINE}a remark\n" in shown  # on a line of its own
    assert "reading: 1 of 4" not in shown


def test_a_log_file_gets_lines_after_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleProgress(clock).task("training", total=2_000) as task:
        for seconds in (1, FIRST_LINE - 2, 1, LINE_EVERY - 1, 1):
            clock.now += seconds
            task.update(completed=int(clock.now) * 10, state=f"loss {clock.now:.0f}")
    assert capsys.readouterr().err.splitlines() == [
        "training: 1,150 of 2,000  loss 115",
        "training: 1,750 of 2,000  loss 175",
    ]


def test_a_short_task_writes_nothing_to_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(ConsoleProgress(Clock()).track([3, 4], "reading")) == [3, 4]
    assert capsys.readouterr().err == ""


def test_a_task_without_a_total_counts(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleProgress(clock).task("reading") as task:
        clock.now += FIRST_LINE
        task.advance()
    assert capsys.readouterr().err == "reading: 1\n"


def test_a_new_label_is_a_line_in_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleProgress(Clock()).task("measuring") as task:
        task.update(label="timing the network")
    assert capsys.readouterr().err == "timing the network\n"


def test_an_error_removes_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    become_terminal(monkeypatch)
    progress = ConsoleProgress()
    with pytest.raises(KeyError), progress.task("reading", total=4):
        raise KeyError
    assert progress.bars is None


def test_names_do_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = become_terminal(monkeypatch)
    progress = ConsoleProgress()
    with progress.task(HOSTILE, total=1) as task:
        task.update(label=HOSTILE, state=HOSTILE)
        refresh(progress)
        progress.say(HOSTILE)
    shown = terminal.getvalue()
    assert shown.count(SHOWN) >= 3
    for steering in ("\x1b]0", "\x07", "\x1b[2J", "\u202e"):
        assert steering not in shown


def test_names_are_plain_in_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleProgress(clock).task(HOSTILE, total=1) as task:
        clock.now += FIRST_LINE
        task.update(state=HOSTILE)
    assert capsys.readouterr().err == f"{SHOWN}: 0 of 1  {SHOWN}\n"
