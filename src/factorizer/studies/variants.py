"""`factorizer ablate training`: the paper's two ablations that need training, as runs and as its
Tables 3 and 4.

Beyond the paper, a third table compares ways to factorize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from factorizer.config import Preset
from factorizer.errors import RunError
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.files import write_atomically
from factorizer.preset_files import change_preset
from factorizer.progress import SILENT, Progress
from factorizer.reports.comparison import comparison_files
from factorizer.reports.tables import latex_table, table_csv
from factorizer.studies.comparing import load_entry
from factorizer.training.run import train_fold
from factorizer.training.signals import Interrupted
from factorizer.training.trainer import Machine

FULL = "swin, NMF and MLP"
KINDS = ("global", "local", "swin")


@dataclass(frozen=True)
class Variant:
    """A row of a table: its name, and how it differs from the preset."""

    name: str
    changes: Sequence[str]


def system(kind: str) -> str:
    return f"model.name={kind}-factorizer"


SUBBLOCKS = [
    Variant("MLP only", [system("swin"), "model.mixer=none"]),
    *(
        Variant(f"{kind}, NMF only", [system(kind), "model.mixer=nmf", "model.mlp_ratio=0.0"])
        for kind in KINDS
    ),
    Variant(FULL, [system("swin"), "model.mixer=nmf"]),
]
POSITIONS = [
    Variant(f"{kind}, {'with' if with_position else 'without'} position", [system(kind), change])
    for kind in KINDS
    for with_position in (False, True)
    for change in [f"model.position_embedding={str(with_position).lower()}"]
]
SOLVERS = [
    *(
        Variant(
            f"{title}, {terms}", [system("swin"), f"model.solver={solver}", f"model.rank={rank}"]
        )
        for title, solver, rank, terms in (
            ("HALS", "hals", 2, "2 terms"),
            ("multiplicative", "mu", 2, "2 terms"),
            ("semi-NMF", "semi", 2, "2 terms"),
            ("convex NMF", "convex", 2, "2 terms"),
            ("greedy", "greedy", 2, "up to 2 terms"),
            ("joint", "joint", 1, "1 term and 1 shared"),
            ("HALS", "hals", 1, "1 term"),
        )
    )
]
TABLES = {"subblocks": SUBBLOCKS, "position": POSITIONS, "solvers": SOLVERS}
PAPER = ("subblocks", "position")


def ablate_training(
    preset: Preset,
    *,
    tables: Sequence[str],
    data: Path,
    fold: int,
    out: Path,
    machine: Machine | None = None,
    progress: Progress = SILENT,
) -> list[Path]:
    """Train every variant, or go on with it, then write each table; a variant in both tables is
    trained once."""
    machine = machine or Machine()
    if machine.processes() != (1, 1):
        raise RunError(
            "ablations are trained by one process; start several with different folders instead"
        )
    check_variants(preset, tables)
    names = folder_names(preset)
    runs: dict[str, Path] = {}  # by configuration
    written: list[Path] = []
    for table in tables:
        entries = []
        for variant in TABLES[table]:
            own = change_preset(preset, variant.changes)
            key = own.model_dump_json()
            if key not in runs:
                progress.say(f"{table}: {variant.name}")
                place = out / "runs" / names[key]
                outcome = train_fold(
                    own,
                    data=data,
                    fold=fold,
                    out=place,
                    resume=True,
                    machine=machine,
                    progress=progress,
                )
                if outcome.signal:
                    raise Interrupted(outcome.signal, said=True)
                runs[key] = outcome.folder
            entries.append(load_entry(variant.name, runs[key] / "scores.csv", None))
        written += write_table(out / table, entries, pairs=table == "position")
    return written


def check_variants(preset: Preset, tables: Sequence[str]) -> None:
    """The preset must leave the variants of a table different."""
    for table in tables:
        seen: dict[str, str] = {}
        for variant in TABLES[table]:
            same = seen.setdefault(
                change_preset(preset, variant.changes).model_dump_json(), variant.name
            )
            if same != variant.name:
                raise RunError(
                    f"with this preset {variant.name!r} is the same as {same!r}; change its model "
                    "section"
                )


def fields_of(table: str) -> set[str]:
    """What every variant of a table sets, so that nothing else can."""
    return set.intersection(
        *({change.split("=")[0] for change in variant.changes} for variant in TABLES[table])
    )


def folder_names(preset: Preset) -> dict[str, str]:
    """The folder of each configuration: the name of the first variant, of all tables, that has
    it."""
    names: dict[str, str] = {}
    for variant in (variant for table in TABLES.values() for variant in table):
        key = change_preset(preset, variant.changes).model_dump_json()
        names.setdefault(key, variant.name.replace(", ", "-").replace(" ", "-"))
    return names


def write_table(folder: Path, entries: Sequence[Entry], *, pairs: bool) -> list[Path]:
    """The table with its tests: against the last variant, or each pair of variants by itself in a
    folder of its own."""
    comparison = compare_entries(entries, reference=entries[-1].name)
    files: dict[str, str | bytes]
    if pairs:
        files = {"table.csv": table_csv(comparison), "table.tex": latex_table(comparison)}
        for first, second in zip(entries[::2], entries[1::2], strict=True):
            two = comparison_files(compare_entries([first, second], reference=second.name))
            files |= {
                f"{second.name.split(',')[0]}/{name}": content for name, content in two.items()
            }
    else:
        files = comparison_files(comparison)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]
