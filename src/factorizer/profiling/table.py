"""The cost table: parameters and FLOPs of every system beside the paper's, and time and memory."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import resources
from typing import Any

from factorizer.config import Preset, build_options
from factorizer.errors import FactorizerError
from factorizer.hardware import free_bytes
from factorizer.progress import SILENT, Progress

BYTES_PER_WEIGHT = 4
MIB = 2**20
USABLE = 0.9  # share of the free memory


@dataclass(frozen=True)
class Row:
    """The cost of one system. A value that is not known is None."""

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
    preset: Preset, preset_name: str, names: Sequence[str], *, progress: Progress = SILENT
) -> list[Row]:
    """Count every system. Nothing is computed.

    A system that cannot be built for this preset says why in its note. The paper has figures for
    the presets of its two data sets, which `preset_name` may name.
    """
    paper = paper_figures(preset_name)
    return [
        count_row(preset, name, paper.get(name, (None, None)))
        for name in progress.track(names, "counting")
    ]


def count_row(preset: Preset, name: str, paper: tuple[float | None, float | None]) -> Row:
    """Count one system."""
    from factorizer.config.networks import build_system, building_errors
    from factorizer.profiling.count import build_without_storage, count_cost

    try:
        with building_errors(preset, name):
            network = build_without_storage(partial(build_system, preset, name))
            cost = count_cost(network, (preset.in_channels, *preset.data.patch_size))
    except FactorizerError as error:
        return Row(name, note=f"cannot be built: {error}")
    paper_params_m, paper_gflops = paper
    return Row(
        name,
        params=cost.params,
        gflops=cost.flops / 1e9,
        gmacs=cost.macs / 1e9,
        paper_params_m=paper_params_m,
        paper_gflops=paper_gflops,
    )


def cost_of_network(preset: Preset) -> tuple[float, float] | None:
    """Millions of parameters, and GFLOPs of one patch, of a preset's network.

    None if it cannot be built.
    """
    (row,) = count_rows(preset, "", [preset.model.name])
    if row.params is None or row.gflops is None:
        return None
    return row.params / 1e6, row.gflops


def paper_figures(preset_name: str) -> dict[str, tuple[float, float]]:
    """Millions of parameters and GFLOPs by system, as the paper prints them for its data sets."""
    text = (resources.files("factorizer") / "profiling" / "paper.csv").read_text()
    figures = {}
    for line in csv.DictReader(text.splitlines()):
        if line["preset"] == preset_name:
            figures[line["model"]] = (float(line["params_m"]), float(line["gflops"]))
    return figures


def measure_memory(
    rows: Sequence[Row], preset: Preset, *, progress: Progress = SILENT
) -> list[Row]:
    """Add the peak memory of every system that can be built."""
    from factorizer.profiling import measure

    measured = []
    with progress.task("memory", total=len(measure.MODES) * len(rows)) as task:
        for row in rows:
            options = build_options(preset, row.model)
            peaks: dict[str, float | None] = {}
            for mode in measure.MODES:
                if row.params:
                    peaks[mode] = measure.peak_mib_of_system(row.model, options, mode)
                task.advance()
            forward_mib, training_mib = peaks.get("forward"), peaks.get("training")
            measured.append(replace(row, forward_mib=forward_mib, training_mib=training_mib))
    return measured


def measure_time(
    rows: Sequence[Row], preset: Preset, rounds: int, *, progress: Progress = SILENT
) -> list[Row]:
    """Add the times of all systems, which are measured in turn.

    A system whose training does not fit beside the weights of the others is not timed. Its note
    says so.
    """
    from factorizer.config.networks import build_system
    from factorizer.profiling import measure

    room = (USABLE * free_bytes() - measure.KEPT) / MIB
    fitting = systems_that_fit(rows, room)
    with progress.task("time", total=len(measure.MODES) * len(fitting) * (rounds + 1)) as task:
        options = {name: build_options(preset, name) for name in fitting}
        networks = {name: build_system(preset, name) for name in fitting}
        seconds: dict[str, dict[str, float]] = {}
        for mode in measure.MODES:
            steps = {}
            for name, network in networks.items():
                steps[name] = measure.make_step(network, measure.make_input(options[name]), mode)
            timed = measure.time_interleaved(steps, rounds, task.advance)
            seconds[mode] = {name: statistics.median(values) for name, values in timed.items()}
    return add_times(rows, seconds["forward"], seconds["training"], room)


def systems_that_fit(rows: Sequence[Row], room: float) -> list[str]:
    """The systems whose training fits into so many MiB beside the weights of all."""
    weights = sum(row.params * BYTES_PER_WEIGHT / MIB for row in rows if row.params)
    fitting = []
    for row in rows:
        if row.training_mib is not None and row.training_mib + weights < room:
            fitting.append(row.model)
    return fitting


def add_times(
    rows: Sequence[Row], forward: Mapping[str, float], training: Mapping[str, float], room: float
) -> list[Row]:
    """The rows with their times, or with a note why they have none."""
    note = (
        f"not timed: its training does not fit in the {room / 1024:.1f} GiB that are free beside "
        "the others"
    )
    timed = []
    for row in rows:
        if row.model in forward:
            seconds = forward[row.model], training[row.model]
            timed.append(replace(row, forward_s=seconds[0], training_s=seconds[1]))
        else:
            timed.append(replace(row, note=row.note or note))
    return timed


def add_scores(rows: Sequence[Row], dice: Mapping[str, float]) -> list[Row]:
    """Add the mean Dice of the systems that have one."""
    return [replace(row, dice=dice.get(row.model)) for row in rows]
