"""Ctrl-C and SIGTERM end a command with a shell's exit code and advice."""

from __future__ import annotations

import signal
import threading

import pytest
import typer

from factorizer.commands.stopping import stoppable
from factorizer.training.signals import Interrupted

ADVICE = "stopped; run the same command to resume"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_code_and_advice(
    number: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    with pytest.raises(typer.Exit) as end, stoppable(ADVICE):
        signal.raise_signal(number)
    assert end.value.exit_code == code
    assert capsys.readouterr().err == f"{ADVICE}\n"
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == before


def test_a_training_that_saved_and_stopped_ends_in_the_same_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as end, stoppable(ADVICE):
        raise Interrupted(signal.SIGTERM)
    assert end.value.exit_code == 143
    assert capsys.readouterr().err == f"{ADVICE}\n"


def test_other_threads_keep_the_signals_as_they_are() -> None:
    codes: list[int] = []

    def work() -> None:
        try:
            with stoppable(ADVICE):
                raise KeyboardInterrupt
        except typer.Exit as end:
            codes.append(end.exit_code)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert codes == [130]


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), stoppable(ADVICE):
        raise KeyError("region")
