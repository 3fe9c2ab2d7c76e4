"""Ablate the training: train variants of a Factorizer, and compare them (Tables 3 and 4).

A third table, which is not in the paper, compares ways to factorize.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from factorizer.config import Preset
from factorizer.errors import RunError
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.files import write_atomically
from factorizer.preset_files import change_preset, load_preset, refuse_idle_options
from factorizer.progress import SILENT, Progress
from factorizer.reports.comparison import comparison_files
from factorizer.reports.tables import latex_table, table_csv
from factorizer.runs.facts import read_facts
from factorizer.runs.fold import Fold
from factorizer.training.machine import Machine
from factorizer.training.session import train_fold

SWIN = "model.name=swin-factorizer"
KINDS = ("global", "local", "swin")


@dataclass(frozen=True)
class Variant:
    """A row of a table: its name, and how it differs from the preset."""

    name: str
    changes: Sequence[str]

    @property
    def fields(self) -> set[str]:
        """The fields of the preset that it sets."""
        return {change.split("=")[0] for change in self.changes}

    @property
    def folder_name(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "-")


def subblock_variants() -> list[Variant]:
    """With NMF, with the MLP, and with both. The last one is the paper's."""
    variants = [Variant("MLP only", [SWIN, "model.mixer=none"])]
    for kind in KINDS:
        changes = [f"model.name={kind}-factorizer", "model.mixer=nmf", "model.mlp_ratio=0.0"]
        variants.append(Variant(f"{kind}, NMF only", changes))
    variants.append(Variant("swin, NMF and MLP", [SWIN, "model.mixer=nmf"]))
    return variants


def position_variants() -> list[Variant]:
    """Pairs without and with a position embedding."""
    variants = []
    for kind in KINDS:
        for word, value in (("without", "false"), ("with", "true")):
            changes = [f"model.name={kind}-factorizer", f"model.position_embedding={value}"]
            variants.append(Variant(f"{kind}, {word} position", changes))
    return variants


def solver_variant(name: str, solver: str, rank: int) -> Variant:
    return Variant(name, [SWIN, f"model.solver={solver}", f"model.rank={rank}"])


SUBBLOCKS = subblock_variants()
POSITIONS = position_variants()
SOLVERS = [
    solver_variant("HALS, 2 terms", "hals", 2),
    solver_variant("multiplicative, 2 terms", "mu", 2),
    solver_variant("semi-NMF, 2 terms", "semi", 2),
    solver_variant("convex NMF, 2 terms", "convex", 2),
    solver_variant("greedy, up to 2 terms", "greedy", 2),
    solver_variant("joint, 1 term and 1 shared", "joint", 1),
    solver_variant("HALS, 1 term", "hals", 1),
]
TABLES: Mapping[str, Sequence[Variant]] = {
    "subblocks": SUBBLOCKS,
    "position": POSITIONS,
    "solvers": SOLVERS,
}
PAPER = ("subblocks", "position")


@dataclass(frozen=True)
class TrainedVariants:
    """The files that were written. `signal` is the one that stopped the training, or 0."""

    files: Sequence[Path]
    signal: int = 0


def ablate_training(
    preset: str | Path | Preset,
    *,
    data: Path,
    out: Path,
    tables: Sequence[str] = PAPER,
    changes: Sequence[str] = (),
    fold: int = 0,
    machine: Machine | None = None,
    progress: Progress = SILENT,
) -> TrainedVariants:
    """Train or resume every variant of some tables, and write each table when it is complete.

    A variant that is in two tables is trained once.

    Args:
        preset: What the variants have in common: a preset, its name, or its file.
        data: The data set: its folder, or a list of cases.
        out: The folder. Variants go to OUT/runs, tables to OUT/TABLE.
        tables: Some of subblocks, position and solvers.
        changes: Fields of the preset to change, as PATH=VALUE.
        fold: The fold that is held out.
        machine: Device and workers. Only one process can train.
        progress: Where lines and bars go.

    Example:
        >>> tables = factorizer.ablate_training("isles22", data=data, out=out)  # doctest: +SKIP
        >>> tables.files  # doctest: +SKIP
    """
    machine = machine or Machine()
    if machine.processes() != (1, 1):
        raise RunError(
            "ablations are trained by one process; start several with different folders instead"
        )
    common = change_preset(load_preset(preset), changes)
    refuse_idle_options(common, changes)
    check_tables(tables, changes)
    check_variants(common, tables)
    names = folder_names(common)
    train_one = partial(
        train_fold, data=data, fold=fold, resume=True, machine=machine, progress=progress
    )
    written: list[Path] = []
    trained: dict[str, Fold] = {}  # by configuration
    for table in tables:
        entries = []
        for variant in TABLES[table]:
            own = change_preset(common, variant.changes)
            key = own.model_dump_json()
            if key not in trained:
                progress.say(f"{table}: {variant.name}")
                outcome = train_one(own, out=out / "runs" / names[key])
                if outcome.signal:
                    return TrainedVariants(written, outcome.signal)
                trained[key] = outcome.fold
            entries.append(read_entry(variant, trained[key]))
        written += write_table(out / table, table_files(table, entries))
    return TrainedVariants(written)


def check_tables(tables: Sequence[str], changes: Sequence[str]) -> None:
    """Refuse tables that do not exist, and changes of fields that a table sets itself."""
    changed = {change.split("=")[0].strip() for change in changes}
    for table in tables:
        if table not in TABLES:
            raise RunError(f"there is no table {table!r}; choose from {', '.join(TABLES)}")
        taken = sorted(changed & common_fields(table))
        if taken:
            raise RunError(
                f"the change of {taken[0]} has no effect: the table {table} sets it itself; "
                "leave it out"
            )


def common_fields(table: str) -> set[str]:
    """The fields that every variant of a table sets."""
    first, *others = TABLES[table]
    fields = first.fields
    for variant in others:
        fields &= variant.fields
    return fields


def check_variants(preset: Preset, tables: Sequence[str]) -> None:
    """Refuse a preset with which two variants of a table are the same."""
    for table in tables:
        seen: dict[str, str] = {}
        for variant in TABLES[table]:
            key = change_preset(preset, variant.changes).model_dump_json()
            same = seen.setdefault(key, variant.name)
            if same != variant.name:
                raise RunError(
                    f"with this preset {variant.name!r} is the same as {same!r}; change its model "
                    "section"
                )


def folder_names(preset: Preset) -> dict[str, str]:
    """The folder of each configuration: the name of the first variant of all tables that has it."""
    names: dict[str, str] = {}
    for variants in TABLES.values():
        for variant in variants:
            key = change_preset(preset, variant.changes).model_dump_json()
            names.setdefault(key, variant.folder_name)
    return names


def read_entry(variant: Variant, fold: Fold) -> Entry:
    """A trained variant as a row of a comparison."""
    return Entry(variant.name, fold.scores(), facts=read_facts(fold.path))


def table_files(table: str, entries: Sequence[Entry]) -> dict[str, str | bytes]:
    """The contents of a table's files by name.

    All variants are tested against the last one. Positions are tested pair by pair instead, each
    pair in a folder of its own.
    """
    comparison = compare_entries(entries, reference=entries[-1].name)
    if table != "position":
        return dict(comparison_files(comparison))
    files: dict[str, str | bytes] = {
        "table.csv": table_csv(comparison),
        "table.tex": latex_table(comparison),
    }
    for without, with_position in zip(entries[::2], entries[1::2], strict=True):
        pair = compare_entries([without, with_position], reference=with_position.name)
        kind = with_position.name.split(",")[0]
        for name, content in comparison_files(pair).items():
            files[f"{kind}/{name}"] = content
    return files


def write_table(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files into a folder, and return their paths."""
    written = []
    for name, content in files.items():
        write_atomically(folder / name, content)
        written.append(folder / name)
    return written
