"""Everything once, on synthetic tumours: training, prediction, scores, figures and one HTML page.

It takes two to five minutes on two idle CPU cores. `make demo` runs it. All results are in the
folder demo.
"""

from __future__ import annotations

import csv
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

from demo_page import Figures, make_page
from rich.console import Console
from rich.table import Table
from voxel_baseline import predict_by_voxel

import factorizer
from factorizer.config import Preset
from factorizer.evaluation.scores import Means

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
    bars = factorizer.ConsoleProgress()
    preset = factorizer.change_preset(factorizer.load_preset("brats"), CHANGES)
    data = folder / "data"
    if not (data / "dataset.json").exists():  # it is written last
        console.print("Drawing 50 synthetic brains with tumours, 40 to train on and 10 to test on.")
        factorizer.make_synthetic("brats", data, cases=50, size=48, progress=bars)
    outcome = factorizer.train(preset, data=data, out=folder / "run", resume=True, progress=bars)
    if not outcome.finished:
        console.print("Run it again to resume.")
        return
    unseen = write_list(folder / "unseen.csv", outcome.fold.held_out())
    predicted = factorizer.predict(
        outcome.folder, unseen, folder / OURS, resume=True, progress=bars
    )
    require(predicted.failed)
    predict_by_voxel(preset, data, outcome.fold.held_out(), folder / BASELINE)
    remove_results(folder)
    means = {name: score(name, folder, preset, bars) for name in (OURS, BASELINE)}
    print_scores(means)
    systems = [f"{name}={folder / name}" for name in (BASELINE, OURS)]
    gallery = factorizer.draw_gallery(
        data, preset, systems, out=folder / "segmentations.png", channel="FLAIR", progress=bars
    )
    figures = Figures(
        gallery.png,
        boxes=draw_boxes(folder),
        components=draw_components(gallery.cases[-1], outcome.folder, folder),
        curve=outcome.fold.curve_file.read_bytes(),
    )
    (folder / "index.html").write_text(make_page(means, figures, CHANGES))
    console.print(f"{time.monotonic() - started:.0f} s. Open [bold]{folder / 'index.html'}[/]")


def image_of(case: str) -> str:
    """The image of a case, from the folder of the demo."""
    return f"data/imagesTr/{case}.nii.gz"


def write_list(file: Path, cases: Iterable[str]) -> Path:
    """List cases as `predict` reads them. Images are given from the folder of the list."""
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["case", "image"])
        writer.writerows([case, image_of(case)] for case in sorted(cases))
    return file


def remove_results(folder: Path) -> None:
    """Remove the tables and figures of an earlier demo. Factorizer overwrites nothing."""
    files = ["segmentations.png"]
    for model in (OURS, BASELINE):
        files += [f"scores {model}.csv", f"summary_{model}.json"]
    for file in files:
        (folder / file).unlink(missing_ok=True)
    for name in ("comparison", "components"):
        shutil.rmtree(folder / name, ignore_errors=True)


def score(name: str, folder: Path, preset: Preset, bars: factorizer.Progress) -> dict[str, Means]:
    """Score the predictions of a model, and return the means by region."""
    out = folder / f"scores {name}.csv"
    result = factorizer.evaluate(folder / name, folder / "data", preset, out=out, progress=bars)
    require(result.problems)
    return result.means


def print_scores(means: Mapping[str, Mapping[str, Means]]) -> None:
    """The mean Dice of every region, a row per model."""
    regions = means[OURS]
    table = Table("model", *[f"Dice {region}" for region in regions], "mean Dice")
    for name, own in means.items():
        dices = [own[region].dice for region in regions]
        table.add_row(name, *[f"{dice:.3f}" for dice in [*dices, fmean(dices)]])
    console.print(table)


def draw_boxes(folder: Path) -> bytes:
    """A box plot of the Dice of both models. It is one of the files of a comparison."""
    sources = [f"{name}={folder / f'scores {name}.csv'}" for name in (OURS, BASELINE)]
    out = folder / "comparison"
    factorizer.compare(sources, out=out)
    return (out / "dice.png").read_bytes()


def draw_components(case: str, model: Path, folder: Path) -> bytes:
    """A figure of the components of a case."""
    out = folder / "components"
    image = folder / image_of(case)
    result = factorizer.explain([f"{OURS}={model}"], [image], out=out, volumes=True)
    require(result.problems)
    return (out / f"{case}.png").read_bytes()


def require(problems: object) -> None:
    """Stop if something failed."""
    if problems:
        raise RuntimeError(str(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
