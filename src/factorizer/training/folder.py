"""The folder of a run: whether a run may start there, its folds, and what it says about itself.

OUT/folds.json and OUT/foldK/{config.yaml, run.json, log/metrics.csv, checkpoints/, scores.csv, learning_curve.png}.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import unified_diff
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from factorizer import __version__
from factorizer.config import Preset
from factorizer.data.cases import Cohort
from factorizer.data.folds import Folds, draw_folds, read_fold_of, read_folds, read_own_folds
from factorizer.doctor import cpu_model
from factorizer.evaluation.scores import read_scores, write_scores
from factorizer.files import write_atomically
from factorizer.preset_files import PresetError, change_preset, load_preset, to_yaml

PACKAGES = ("torch", "lightning", "monai", "numpy", "nibabel")


class RunError(ValueError):
    """A run that cannot start or go on as asked."""


def steps_before(folder: Path) -> int | None:
    """The length of the run that is in a folder, None where there is none."""
    file = folder / "config.yaml"
    return load_preset(file).training.max_steps if file.exists() else None


def is_finished(folder: Path, preset: Preset) -> bool:
    """Whether the run is there at full length. The length is looked at first: an extension moves the scores away
    before it writes the new one."""
    steps = steps_before(folder)
    return steps is not None and steps >= preset.training.max_steps and (folder / "scores.csv").exists()


def check_folder(folder: Path, preset: Preset, *, resume: bool) -> None:
    """Where the run's folder is there already, it must be this run's, or a shorter one of this, and be resumed."""
    file, text = folder / "config.yaml", to_yaml(preset)
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise RunError(f"{folder} is not empty and no run; give another --out")
        return
    if not is_preset_of(file, preset) and not (resume and is_extension(folder, preset)):
        changes = unified_diff(configuration_of(file).splitlines(), text.splitlines(), lineterm="", n=0)
        shown = "\n".join(line for line in changes if line[:3] not in ("---", "+++") and line[:2] != "@@")
        advice = "give another --out (only a larger training.max_steps can be resumed)"
        raise RunError(f"{folder} is a run with another configuration; {advice}. The difference:\n{shown}")
    if not resume:
        raise RunError(f"{folder} is a run already; go on with --resume, or give another --out")


def is_preset_of(file: Path, preset: Preset) -> bool:
    """Whether a run's configuration says the same, regions in the same order too."""
    return configuration_of(file) == to_yaml(preset)


def configuration_of(file: Path) -> str:
    """What a run's config.yaml says: a field that came later has its default, and comments are those of today."""
    try:
        return to_yaml(load_preset(file))
    except PresetError:
        return file.read_text()


def check_siblings(folder: Path, preset: Preset) -> None:
    """The folds of a run have one configuration, but for the length where one is extended before the others."""
    for file in sorted(folder.parent.glob("fold*/config.yaml")):
        same_length = change_preset(preset, [f"training.max_steps={steps_before(file.parent)}"])
        if file.parent != folder and not is_preset_of(file, same_length):
            raise RunError(f"{file.parent} is a fold with another configuration; give another --out")


def check_cases(folder: Path, entries: Mapping[str, Path]) -> None:
    """The cases of a run, by content, are those that it and its other folds began with; a fold writes them down."""
    now = {name: entry.name for name, entry in sorted(entries.items())}
    for file in sorted(folder.parent.glob("fold*/cases.json")):
        before = json.loads(file.read_text())
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed:
            some = f"{', '.join(changed[:3])}{', ...' * (len(changed) > 3)}"
            raise RunError(
                f"{file.parent} was begun with other data, or with another version of the preprocessing: "
                f"{len(changed)} cases differ ({some}); give the same --data, or another --out"
            )
    if not (folder / "cases.json").exists():
        write_atomically(folder / "cases.json", json.dumps(now, indent=0) + "\n")


def is_extension(folder: Path, preset: Preset) -> bool:
    """Whether the run in a folder differs from the wanted one in being shorter, and in nothing else."""
    steps = steps_before(folder)
    if steps is None or steps >= preset.training.max_steps:
        return False
    return is_preset_of(folder / "config.yaml", change_preset(preset, [f"training.max_steps={steps}"]))


def claim_folder(folder: Path, preset: Preset) -> str:
    """Write the configuration; of a run that is made longer, put aside what was found of the weights before. Says what
    was done to it."""
    steps = steps_before(folder)
    extended = is_extension(folder, preset)
    found = [folder / "scores.csv", folder / "speeds.json"]
    found += [folder.parent / "scores.csv", folder.parent / "postprocessing.json"]  # of all folds
    for file in found:
        if extended and file.exists():
            os.replace(file, file.with_stem(f"{file.stem}-{steps}"))
    write_atomically(folder / "config.yaml", to_yaml(preset))
    (folder / "checkpoints").mkdir(exist_ok=True)
    if not extended:
        return ""
    return (
        f"extending from {steps} to {preset.training.max_steps} steps: the learning rate goes on where a run of "
        f"{preset.training.max_steps} steps would be, so the result differs from such a run"
    )


def settle_folds(file: Path, cohort: Cohort, preset: Preset, split: Path | None) -> tuple[Folds, str]:
    """The folds of this run and where they are from: those written before, those given, or new ones."""
    if file.exists():
        folds = read_own_folds(file, cohort.cases)
        gone = sorted(read_fold_of(file).keys() - {case.name for case in cohort.cases})
        if gone:
            message = f"{gone[0]}{f' and {len(gone) - 1} more' if len(gone) > 1 else ''}"
            raise RunError(
                f"{file} has {message}, which {cohort.root} has no longer; restore it, or give another --out"
            )
        if split is not None and read_own_folds(split, cohort.cases) != folds:
            raise RunError(f"{file} has other folds than {split}; give another --out, or leave out --split")
        return folds, json.loads(file.read_text())["origin"]
    if split is not None:
        return read_folds(split, cohort.labelled), f"split {split.name}"
    seed = preset.training.seed
    return draw_folds(cohort.labelled, num_folds=preset.training.folds, seed=seed), f"seed {seed}"


def describe_start(folder: Path, preset: Preset, data: Path, options: dict[str, Any]) -> None:
    """Append this start to run.json: versions, machine, command and the state of the code."""
    starts = read_starts(folder)
    starts.append(
        {
            "started": now(),
            "command": sys.argv,
            "data": str(data),
            "seed": preset.training.seed,
            **options,
            "machine": f"{platform.system()} {platform.machine()}, {cpu_model()}, {torch.get_num_threads()} threads",
            "versions": {
                "factorizer": __version__,
                "python": platform.python_version(),
                **{package: version(package) for package in PACKAGES},
            },
            "git": git_state(),
        }
    )
    write_atomically(folder / "run.json", json.dumps(starts, indent=2) + "\n")


def describe_end(folder: Path, **facts: Any) -> None:
    """Add to the last start in run.json how it ended: steps and seconds."""
    starts = read_starts(folder)
    starts[-1] |= {"ended": now(), **facts}
    write_atomically(folder / "run.json", json.dumps(starts, indent=2) + "\n")


def read_starts(folder: Path) -> list[dict[str, Any]]:
    file = folder / "run.json"
    return json.loads(file.read_text()) if file.exists() else []


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_state() -> str | None:
    """The commit of the code, if it is a checkout, and whether it was changed."""
    root = Path(__file__).parents[3]
    if not (root / "src" / "factorizer").is_dir():  # installed: the repository around it, if any, is another
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def unfinished_folds(out: Path, folds: Sequence[int], preset: Preset) -> list[int]:
    return [fold for fold in folds if not is_finished(out / f"fold{fold}", preset)]


def pool_scores(out: Path, folds: Sequence[int], preset: Preset) -> Path:
    """One table of all folds, each case from the fold that held it out."""
    missing = unfinished_folds(out, folds, preset)
    if missing:
        raise RunError(f"the folds {', '.join(map(str, missing))} of {out} are not finished; train them first")
    rows = [row for fold in folds for row in read_scores(out / f"fold{fold}" / "scores.csv")]
    write_scores(out / "scores.csv", sorted(rows, key=lambda row: (row.case, row.region, row.metric)))
    return out / "scores.csv"
