"""Kill a run at each change that it makes in its folder, resume it, and report wrong results.

This is a separate program, because a process that has computed with several threads cannot fork
safely. Every killed and every resumed run is a fork of it, which saves the imports. `python -m
testkit.kills DATA WORK` prints JSON: the changes of a whole run, and what was wrong with the runs
that were killed.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.figure  # noqa: F401  (imported once, not in every fork)
import torch

from factorizer.preset_files import change_preset
from testkit.runs import PRESET, run, weights

SMALL = change_preset(
    PRESET, ["training.max_steps=4", "training.validate_every=2", "data.patch_size=[8,8,8]"]
)
KILLED = 137
SHARED = (
    "folds.json",
    "fold1/cases.json",
    "fold1/config.yaml",
    "fold1/scores.csv",
    "fold1/log/metrics.csv",
)


def watch(out: Path, change: Callable[[str], None]) -> None:
    """Call `change` before whatever this process changes in a folder, except its locks and
    TensorBoard's events."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in ("os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            return
        path = (
            os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
        )
        if os.path.exists(path) == (event == "os.mkdir") and event != "open":  # changes nothing
            return
        if path.startswith(str(out)) and ".locks" not in path and "events.out" not in path:
            change(f"{event} {path.removeprefix(str(out))}")

    sys.addaudithook(hook)


def in_fork(work: Callable[[], object], log: Path) -> int:
    """The exit code of a process that does some work; what it raised is in `log`."""
    process = os.fork()
    if not process:
        try:
            work()
        except BaseException:
            log.write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def list_changes(data: Path, out: Path, log: Path) -> list[str]:
    """What a run without interruption changes in its folder, in order."""
    listed = out.with_suffix(".changes")

    def work() -> None:
        with listed.open("w") as file:
            watch(out, lambda change: print(change, file=file, flush=True))
            assert run(data, out, SMALL).finished

    code = in_fork(work, log)
    assert code == 0, log.read_text()
    return listed.read_text().splitlines()


def kill_at(number: int, data: Path, out: Path, log: Path) -> int:
    """Start a run that dies at the change of this number."""
    seen = 0

    def change(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen > number:
            os._exit(KILLED)

    def work() -> None:
        watch(out, change)
        run(data, out, SMALL)

    return in_fork(work, log)


def differences(whole: Path, other: Path) -> list[str]:
    """How a resumed run differs from the one that was not interrupted."""
    found = [file for file in SHARED if (whole / file).read_bytes() != (other / file).read_bytes()]
    for name in ("last", "best"):
        one, two = (weights(out / "fold1", name) for out in (whole, other))
        if one.keys() != two.keys() or not all(torch.equal(one[key], two[key]) for key in one):
            found.append(f"{name}.ckpt")
    found += [
        f"no {name}" for name in ("learning_curve.png",) if not (other / "fold1" / name).is_file()
    ]
    left = [
        path for path in other.rglob(".*") if path.name != ".locks" and ".locks" not in path.parts
    ]
    return found + [f"left: {path.relative_to(other)}" for path in left]


def chosen(changes: Sequence[str]) -> list[int]:
    """All changes, but of the preprocessed cases only those of the first: they are made in the same
    way."""
    cached = [
        number
        for number, change in enumerate(changes)
        if change.split(" ", 1)[1].startswith("/cache/")
    ]
    return [
        number for number in range(len(changes) + 1) if number not in cached[len(cached) // 3 :]
    ]


def main(data: Path, work: Path) -> None:
    torch.set_num_threads(1)
    log = work / "error.txt"
    changes = list_changes(data, work / "whole", log)
    wrong: dict[str, list[str]] = {}
    for number in chosen(changes):
        out = work / f"killed{number}"
        killed = kill_at(number, data, out, log)
        ended = in_fork(lambda out=out: run(data, out, SMALL, resume=True), log)
        after = changes[number - 1] if number else "nothing"
        where = f"{number}, after {after}"
        if killed != (KILLED if number < len(changes) else 0):
            wrong[where] = [f"the run to be killed ended with {killed}"]
        elif ended:
            wrong[where] = [log.read_text().splitlines()[-1]]
        else:
            found = differences(work / "whole", out)
            if found:
                wrong[where] = found
    print(
        json.dumps({"changes": changes, "killed": len(chosen(changes)), "wrong": wrong}, indent=1)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
