"""Profile the systems: what each one takes for a preset, as a table and as a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from factorizer.config import Preset
from factorizer.errors import FactorizerError
from factorizer.files import refuse_existing, require_ending, write_atomically
from factorizer.models.registry import SYSTEMS, check_name
from factorizer.preset_files import load_preset
from factorizer.profiling.table import Row, add_scores, count_rows, measure_memory, measure_time
from factorizer.progress import SILENT, Progress
from factorizer.runs.run_scores import mean_dice

ROUNDS = 3


@dataclass(frozen=True)
class Profile:
    """The cost of each system, and the files that were written."""

    rows: Sequence[Row]
    files: Sequence[Path]


def profile(
    preset: str | Path,
    *,
    systems: Sequence[str] | None = None,
    measure: bool = False,
    rounds: int | None = None,
    scores: Mapping[str, Path] | None = None,
    out: Path | None = None,
    figure: Path | None = None,
    progress: Progress = SILENT,
) -> Profile:
    """Count the parameters and FLOPs of systems, and measure their time and memory if asked.

    Args:
        preset: A preset's name, or a YAML file. The paper's figures are for its own presets.
        systems: The systems. Otherwise all.
        measure: Whether time and memory are measured on this CPU, which takes minutes.
        rounds: How often each system is timed, 3 unless given. Only with `measure`.
        scores: The scores.csv or the run of some systems, for their Dice.
        out: A file for the rows, as JSON.
        figure: A file for a figure, with the ending png, svg or pdf.
        progress: Where lines and bars go.

    Example:
        >>> (row,) = factorizer.profile("isles22", systems=["nnunet"]).rows
        >>> row.params
        28702723
    """
    loaded = load_preset(preset)
    names = list(systems or SYSTEMS)
    files = [file for file in (out, figure) if file is not None]
    check_request(names, measure=measure, rounds=rounds, figure=figure)
    refuse_existing(*files)
    dice = read_dice(scores or {}, names)
    rows = count_rows(loaded, str(preset), names, progress=progress)
    if len(rows) == 1 and systems and rows[0].note:
        raise FactorizerError(f"{rows[0].model} {rows[0].note}")
    rows = add_scores(rows, dice)
    if measure:
        rows = measure_memory(rows, loaded, progress=progress)
        write_rows(out, rows)  # the long part may still fail
        rows = measure_time(rows, loaded, rounds or ROUNDS, progress=progress)
    write_rows(out, rows)
    if figure is not None:
        draw_figure(figure, rows, loaded, str(preset))
    return Profile(rows, files)


def check_request(
    names: Sequence[str], *, measure: bool, rounds: int | None, figure: Path | None
) -> None:
    """Refuse unknown systems, rounds without measurement, and a figure of unknown format."""
    from factorizer.figures.costs import FORMATS

    for name in names:
        check_name(name)
    if rounds is not None and not measure:
        raise FactorizerError("rounds is for measure; give both or neither")
    if rounds is not None and rounds < 1:
        raise FactorizerError(f"rounds is {rounds}; it must be at least 1")
    if figure is not None:
        require_ending("figure", figure, *[f".{form}" for form in FORMATS])


def read_dice(scores: Mapping[str, Path], names: Sequence[str]) -> dict[str, float]:
    """The mean Dice of each system that has scores."""
    for name, path in scores.items():
        if name not in names:
            raise FactorizerError(
                f"scores has the system {name!r}; it must be one of {', '.join(names)}"
            )
        if not path.exists():
            raise FactorizerError(
                f"scores has {path} for {name}, which does not exist; give a scores.csv, or the "
                "folder of a run"
            )
    return {name: mean_dice(path) for name, path in scores.items()}


def write_rows(file: Path | None, rows: Sequence[Row]) -> None:
    """Write the rows as JSON, if a file is given."""
    if file is not None:
        content = [row.as_dict() for row in rows]
        write_atomically(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def draw_figure(file: Path, rows: Sequence[Row], preset: Preset, preset_name: str) -> None:
    from factorizer.figures.costs import draw_profile
    from factorizer.figures.escapes import escape_label

    shape = (preset.in_channels, *preset.data.patch_size)
    title = f"{escape_label(preset_name)}: {' x '.join(map(str, shape))}"
    write_atomically(file, draw_profile(rows, title, file.suffix[1:]))
