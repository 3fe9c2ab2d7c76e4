"""What differs between the runs that are compared, as far as they wrote it down.

`runs/facts.py` reads the facts of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from factorizer.preset_files import scalar

UNKNOWN = "unknown"
SYSTEM = "model."  # before the fields that are the system's own
SECONDS = "seconds of training"
LONGEST = 80  # characters of a value that is shown

Facts = Mapping[str, Any]  # what was set or found -> its value


@dataclass(frozen=True)
class RunDifference:
    """One thing that is not the same in all runs: its value in each, by the system's name."""

    what: str
    values: Mapping[str, Any]

    @property
    def is_the_system(self) -> bool:
        return self.what.startswith(SYSTEM)


def find_differences(facts: Mapping[str, Facts]) -> list[RunDifference]:
    """The facts that have at least two values among the runs that state them.

    An option that only some systems have is not a difference.
    """
    found = []
    for what in stated(facts):
        values = {name: own.get(what, UNKNOWN) for name, own in facts.items()}
        distinct = {show(own[what]) for own in facts.values() if what in own}
        if len(distinct) > 1:
            found.append(RunDifference(what, values))
    return found


def stated(facts: Mapping[str, Facts]) -> list[str]:
    """Everything that some run states, in the order of the runs."""
    names: dict[str, None] = {}
    for own in facts.values():
        names |= dict.fromkeys(own)
    return list(names)


def find_unknown(facts: Mapping[str, Facts]) -> list[str]:
    """A line for each run that does not state everything."""
    missing = {
        "cases": "which data (no cases.json)",
        "folds": "which folds (no folds.json)",
        SECONDS: "versions and time (no run.json)",
    }
    lines = []
    for name, own in facts.items():
        unstated = [text for what, text in missing.items() if what not in own]
        if not own:
            lines.append(f"{name}: unknown, because no run (config.yaml) is beside its scores")
        elif unstated:
            lines.append(f"{name}: unknown: {', '.join(unstated)}")
    return lines


def show(value: Any) -> str:
    """A value as a preset writes it, on one line. Long values are cut."""
    text = value if isinstance(value, str) else scalar(value)
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
