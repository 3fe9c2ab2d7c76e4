"""Everything once, on synthetic tumours: training, prediction, scores, figures and one HTML page.

It takes about two minutes on two idle CPU cores. `make demo` runs it. All results are in the folder
demo.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from demo_page import Figures, make_page
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TaskID
from rich.table import Table
from voxel_baseline import predict_by_voxel

import factorizer
from factorizer.config import Preset
from factorizer.data.cases import Case
from factorizer.data.layouts import read_cohort
from factorizer.data.outputs import first_file
from factorizer.data.synthetic import write_synthetic
from factorizer.evaluation.scores import Means, mean_scores, write_scores
from factorizer.figures.boxes import draw_boxes
from factorizer.files import write_atomically
from factorizer.inference.predict import predict_cases
from factorizer.progress import Progress, Task
from factorizer.studies.explaining import explain
from factorizer.studies.gallery import draw_gallery

OURS, BASELINE = "swin-factorizer", "logistic regression"
CHANGES = [
    "data.patch_size=[32,40,32]",
    "model.widths=[16,32,64,128]",
    "model.window=4",
    "training.max_steps=600",
    "training.learning_rate=0.003",
    "training.warmup_steps=60",
    "training.checkpoint_every=100",
    "training.validate_every=300",
]
console = Console()


def main(folder: Path) -> None:
    started = time.monotonic()
    preset = factorizer.change_preset(factorizer.load_preset("brats"), CHANGES)
    progress, data = Bars(), folder / "data"
    if not (data / "dataset.json").exists():  # it is written last
        console.print("Drawing 50 synthetic brains with tumours, 40 to train on and 10 to test on.")
        write_synthetic("brats", data, cases=50, size=48, seed=0)
    outcome = factorizer.train_fold(
        preset, data=data, out=folder / "run", resume=True, progress=progress
    )
    if not outcome.finished:
        console.print("Run it again to resume.")
        return
    cohort = read_cohort(data)
    held_out = outcome.fold.held_out()
    unseen = [case for case in cohort.cases if case.name in held_out]
    predictions = predict_cases(
        factorizer.load(outcome.folder), unseen, folder / OURS, skip_existing=True
    )
    for prediction in progress.follow(predictions, "predicting", total=len(unseen)):
        require(prediction.problems)
    predict_by_voxel(preset, cohort, unseen, folder / BASELINE)
    entries = [score(name, folder, preset) for name in (OURS, BASELINE)]
    means = {entry.name: mean_scores(entry.scores) for entry in entries}
    print_scores(means)
    systems = [f"{name}={folder / name}" for name in (BASELINE, OURS)]
    gallery = draw_gallery(data, preset, systems, channel="FLAIR")
    figures = Figures(
        gallery.png,
        boxes=draw_boxes(factorizer.compare_entries(entries), "dice"),
        components=draw_components(cohort.case(gallery.cases[-1]), outcome.folder, folder),
        curve=outcome.fold.curve_file.read_bytes(),
    )
    write_atomically(folder / "segmentations.png", gallery.png)
    write_atomically(folder / "index.html", make_page(means, figures, CHANGES))
    console.print(f"{time.monotonic() - started:.0f} s. Open [bold]{folder / 'index.html'}[/]")


def score(name: str, folder: Path, preset: Preset) -> factorizer.Entry:
    """Score the predictions of a model."""
    scores = factorizer.evaluate_folders(folder / name, folder / "data", preset.data).scores
    write_scores(folder / f"scores {name}.csv", scores)
    return factorizer.Entry(name, scores)


def print_scores(means: dict[str, dict[str, Means]]) -> None:
    """The mean Dice of every region, a row per model."""
    regions = means[OURS]
    table = Table("model", *[f"Dice {region}" for region in regions], "mean Dice")
    for name, own in means.items():
        dices = [own[region].dice for region in regions]
        table.add_row(name, *[f"{dice:.3f}" for dice in [*dices, fmean(dices)]])
    console.print(table)


def draw_components(case: Case, model: Path, folder: Path) -> bytes:
    """A figure of the components of a case."""
    out = folder / "components"
    shutil.rmtree(out, ignore_errors=True)  # of an earlier demo
    result = explain([f"{OURS}={model}"], [first_file(case)], out=out, volumes=True)
    require(result.problems)
    return (out / f"{case.name}.png").read_bytes()


def require(problems: object) -> None:
    """Stop if something failed."""
    if problems:
        raise RuntimeError(str(problems))


class Bars(Progress):
    """Lines and bars on the terminal."""

    def __init__(self) -> None:
        self.bars = RichProgress(console=console, transient=True)

    def say(self, text: str) -> None:
        console.print(text, markup=False, highlight=False)

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Task]:
        self.bars.start()
        row = self.bars.add_task(label, total=total)
        try:
            yield Bar(self.bars, row)
        finally:
            self.bars.remove_task(row)
            if not self.bars.tasks:
                self.bars.stop()


class Bar(Task):
    """One bar."""

    def __init__(self, bars: RichProgress, row: TaskID) -> None:
        self.bars = bars
        self.row = row

    def advance(self, steps: int = 1) -> None:
        self.bars.advance(self.row, steps)

    def update(
        self,
        *,
        label: str | None = None,
        total: int | None = None,
        completed: int | None = None,
        state: str | None = None,
    ) -> None:
        self.bars.update(self.row, description=label, total=total, completed=completed)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
