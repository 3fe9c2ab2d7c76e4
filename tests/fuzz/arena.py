"""Runs commands of Factorizer in forked processes, each within limits of time and memory.

The heavy packages are imported once; a fork then costs milliseconds, so that hundreds of inputs are
tried in a minute.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
MOST_SECONDS = 20.0
MOST_BYTES = 2 * GIB
ROOM = (
    8 * GIB
)  # of addresses that a command may ask for: what is asked for and not used costs nothing
BUG = 70  # exit code of a command that ended with an exception


@dataclass(frozen=True)
class Result:
    """How a command ended: its exit code (negative for a signal), what it printed, seconds and peak
    memory."""

    code: int
    output: str
    seconds: float
    peak_bytes: int

    @property
    def timed_out(self) -> bool:
        return self.seconds >= MOST_SECONDS


def import_everything() -> None:
    """Import what commands import on first use, so that forks need not."""
    import lightning.pytorch  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import monai.data.utils  # noqa: F401

    import factorizer.cli
    import factorizer.figures.contact_sheet
    import factorizer.inference.load
    import factorizer.inference.predict
    import factorizer.training.session  # noqa: F401


def run_command(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
) -> Result:
    """Run `factorizer ARGUMENTS` in a folder."""
    log = folder / "output.txt"
    started = time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        run_child(arguments, folder, log, environment or {})
    status, usage = wait_for(child, started + MOST_SECONDS)
    seconds = time.monotonic() - started
    output = log.read_bytes().decode(errors="replace") if log.exists() else ""
    code = os.waitstatus_to_exitcode(status)
    return Result(code, output, seconds, usage.ru_maxrss * 1024)


def wait_for(child: int, deadline: float) -> tuple[int, resource.struct_rusage]:
    """Wait for a process; at the deadline it and all that it started are killed."""
    pause = 0.001
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return status, usage
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return status, usage
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def run_child(
    arguments: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> None:
    """The forked process: it never returns."""
    code = BUG
    try:
        os.setsid()
        redirect_streams(log)
        os.chdir(folder)
        os.environ.update(environment)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        import torch

        torch.set_num_threads(1)
        from factorizer.cli import app

        sys.argv = ["factorizer", *arguments]
        app(list(arguments))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def redirect_streams(log: Path) -> None:
    """Nothing to read, and both outputs into one file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
