"""The cost table: parameters and FLOPs of every system beside the paper's, and what they take
here."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from factorizer.config import Preset, build_options
from factorizer.hardware import free_bytes
from factorizer.models.registry import build_model
from factorizer.preset_files import load_preset


@dataclass(frozen=True)
class Row:
    """One system; what was not asked for, or does not exist, is None."""

    model: str
    params: int | None = None
    gflops: float | None = None
    gmacs: float | None = None
    paper_params_m: float | None = None
    paper_gflops: float | None = None
    forward_s: float | None = None
    training_s: float | None = None
    forward_mib: float | None = None
    training_mib: float | None = None
    dice: float | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def count_rows(
    preset: Preset, preset_name: str, names: Sequence[str], advance: Callable[[], object]
) -> list[Row]:
    """Count every system; nothing is computed. One that cannot be built for this preset says why in
    its note."""
    from factorizer.profiling.count import build_without_storage, count_cost

    paper, rows = paper_figures(preset_name), []
    for name in names:
        params_m, gflops = paper.get(name, (None, None))
        try:
            model = build_without_storage(partial(build_model, name, **build_options(preset, name)))
        except ValueError as error:
            rows.append(Row(name, note=f"cannot be built: {error}"))
        else:
            cost = count_cost(model, (preset.in_channels, *preset.data.patch_size))
            rows.append(Row(name, cost.params, cost.flops / 1e9, cost.macs / 1e9, params_m, gflops))
        advance()
    return rows


def cost_of_run(config: Path) -> tuple[float, float] | None:
    """Millions of parameters and GFLOPs of a run's network on one patch; None where it cannot be
    built."""
    preset = load_preset(config)
    (row,) = count_rows(preset, "", [preset.model.name], lambda: None)
    return None if row.params is None or row.gflops is None else (row.params / 1e6, row.gflops)


def paper_figures(preset_name: str) -> dict[str, tuple[float, float]]:
    """Parameters in millions and GFLOPs of the systems as the paper prints them, for its two data
    sets."""
    text = (resources.files("factorizer") / "profiling" / "paper.csv").read_text()
    lines = csv.DictReader(text.splitlines())
    return {
        x["model"]: (float(x["params_m"]), float(x["gflops"]))
        for x in lines
        if x["preset"] == preset_name
    }


def measure_memory(rows: Sequence[Row], preset: Preset, advance: Callable[[], object]) -> list[Row]:
    """Add the peak memory of every system that can be built; `advance` is called twice for each."""
    from factorizer.profiling import measure

    measured = []
    for row in rows:
        peaks = []
        for mode in measure.MODES:
            options = build_options(preset, row.model)
            peaks.append(
                measure.peak_mib_of_system(row.model, options, mode) if row.params else None
            )
            advance()
        measured.append(replace(row, forward_mib=peaks[0], training_mib=peaks[1]))
    return measured


def measure_time(
    rows: Sequence[Row], preset: Preset, rounds: int, advance: Callable[[], object]
) -> list[Row]:
    """Add times, of all systems in turn; `advance` is called after each measurement.

    A system whose training does not fit beside the weights of the others is not timed, and its note
    says so.
    """
    from factorizer.profiling import measure

    room = 0.9 * free_bytes() / 2**20 - measure.KEPT / 2**20
    weights = sum(row.params * 4 / 2**20 for row in rows if row.params)
    fits = [
        row.model
        for row in rows
        if row.training_mib is not None and row.training_mib + weights < room
    ]
    options = {name: build_options(preset, name) for name in fits}
    networks = {name: build_model(name, **options[name]) for name in fits}
    seconds = {}
    for mode in measure.MODES:
        steps = {
            name: measure.make_step(network, measure.make_input(options[name]), mode)
            for name, network in networks.items()
        }
        timed = measure.time_interleaved(steps, rounds, advance)
        seconds[mode] = {name: statistics.median(values) for name, values in timed.items()}
    note = (
        f"not timed: its training does not fit in the {room / 1024:.1f} GiB that are free beside "
        "the others"
    )
    return [
        replace(
            row, forward_s=seconds["forward"][row.model], training_s=seconds["training"][row.model]
        )
        if row.model in fits
        else replace(row, note=row.note or note)
        for row in rows
    ]


def add_scores(rows: Sequence[Row], dice: Mapping[str, float]) -> list[Row]:
    """Add the mean Dice of the systems that have one."""
    return [replace(row, dice=dice.get(row.model)) for row in rows]
