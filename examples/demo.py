"""Everything once, on synthetic tumours: scans, training, prediction of unseen cases, scores,
pictures, one HTML page.

About six minutes on two CPU cores. `make demo` runs it and leaves all it made in the folder demo.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import LogisticRegression

from factorizer.commands.bars import ConsoleProgress
from factorizer.commands.console import print_table, scores_table
from factorizer.config import Preset
from factorizer.data.cache import Settings, settings_for
from factorizer.data.cases import Case
from factorizer.data.layouts import read_cohort
from factorizer.data.outputs import first_file, prediction_file, write_labels
from factorizer.data.preprocess import restore
from factorizer.data.synthetic import write_synthetic
from factorizer.evaluation.compare import Entry, compare_entries
from factorizer.evaluation.evaluate import evaluate_folders
from factorizer.evaluation.metrics import dice
from factorizer.evaluation.scores import Means, mean_scores, write_scores
from factorizer.figures.boxes import draw_boxes
from factorizer.files import write_atomically
from factorizer.inference.load import load
from factorizer.inference.predict import predict_cases
from factorizer.preset_files import change_preset, load_preset
from factorizer.reports import page
from factorizer.studies.explaining import explain
from factorizer.studies.gallery import draw_gallery
from factorizer.training.run import train_fold

OURS, BASELINE = "swin-factorizer", "logistic regression"
SETTINGS = [
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
    preset = change_preset(load_preset("brats"), SETTINGS)
    data = folder / "data"
    if not (data / "dataset.json").exists():  # which is written last
        console.print("Drawing 50 synthetic brains with tumours, 40 to train on and 10 to test on.")
        write_synthetic("brats", data, cases=50, size=48, seed=0)
    outcome = train_fold(
        preset,
        data=data,
        fold=0,
        out=folder / "run",
        resume=True,
        progress=ConsoleProgress(),
    )
    if not outcome.finished:
        console.print("Run it again to resume.")
        return
    run = outcome.folder
    cohort = read_cohort(data)
    unseen = [case for case in cohort.cases if case.name in held_out(run)]
    known = [case for case in cohort.cases if case.name not in held_out(run)]
    predictor = load(run)
    results = predict_cases(predictor, unseen, folder / OURS, skip_existing=True)
    for _ in track(results, "predicting unseen cases", total=len(unseen), console=console):
        pass
    settings = settings_for(cohort, preset.data)
    predict_by_voxel(preset, settings, known, unseen, folder / BASELINE)

    entries = []
    for name in (OURS, BASELINE):
        scores = evaluate_folders(folder / name, data, preset.data).scores
        write_scores(folder / f"scores {name}.csv", scores)
        entries.append(Entry(name, scores))
        console.print(f"[bold]{name}[/], {len(unseen)} unseen cases")
        print_table(scores_table(scores))
    means = {entry.name: mean_scores(entry.scores) for entry in entries}
    average = {name: float(np.mean([m.dice for m in own.values()])) for name, own in means.items()}

    systems = [f"{name}={folder / name}" for name in (BASELINE, OURS)]
    drawn = draw_gallery(data, preset, systems, channel="FLAIR")
    pictures = drawn.png
    boxes = draw_boxes(compare_entries(entries), "dice")
    best = cohort.case(drawn.cases[-1])
    out = folder / "components"
    shutil.rmtree(out, ignore_errors=True)  # of a demo before
    explained = explain([f"{OURS}={run}"], [first_file(best)], out=out, volumes=True)
    if explained.problems:
        raise RuntimeError(str(explained.problems[0]))
    components = (out / f"{best.name}.png").read_bytes()
    write_atomically(folder / "segmentations.png", pictures)
    curve = (run / "learning_curve.png").read_bytes()
    write_page(folder / "index.html", preset, means, pictures, boxes, components, curve)
    console.print(
        f"mean Dice over ET, TC, WT: [bold]{average[OURS]:.3f}[/], {BASELINE} "
        f"{average[BASELINE]:.3f}; {time.monotonic() - started:.0f} s. Open "
        f"[bold]{folder / 'index.html'}[/]"
    )


def held_out(run: Path) -> set[str]:
    """The cases that the run did not train on."""
    lines = (run / "scores.csv").read_text().splitlines()[1:]
    return {line.split(",")[0] for line in lines}


def predict_by_voxel(
    preset: Preset, settings: Settings, known: list[Case], unseen: list[Case], out: Path
) -> None:
    """What single voxels tell: for each region a logistic regression on the four intensities, cut
    where the Dice of the known cases is highest."""
    data = preset.data
    generator = np.random.default_rng(0)
    voxels, masks = [], []
    for case in known:
        prepared = settings.prepare(case, with_label=True)
        assert prepared.label is not None, "it was asked for"
        chosen = generator.choice(prepared.label.size, 5000, replace=False)
        voxels.append(prepared.image.reshape(len(prepared.image), -1)[:, chosen].T)
        masks.append(data.targets.masks(prepared.label.ravel()[chosen]))
    x, y = np.concatenate(voxels), np.concatenate(masks, axis=1)
    models = [LogisticRegression(max_iter=1000).fit(x, mask) for mask in y]
    cuts = [
        best_cut(model.predict_proba(x)[:, 1], mask) for model, mask in zip(models, y, strict=True)
    ]
    for case in unseen:
        prepared = settings.prepare(case, with_label=False)
        image = prepared.image.reshape(len(prepared.image), -1).T
        found = [m.predict_proba(image)[:, 1] >= cut for m, cut in zip(models, cuts, strict=True)]
        labels = data.targets.label_map(np.stack(found).reshape(-1, *prepared.image.shape[1:]))
        whole = restore(labels[None], prepared.frame, "nearest")[0]
        write_labels(prediction_file(out, case), whole, case, binary=len(data.labels) == 1)


def best_cut(probabilities: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
    return max(
        np.linspace(0.05, 0.95, 19).tolist(), key=lambda cut: dice(probabilities >= cut, mask)
    )


def write_page(
    file: Path,
    preset: Preset,
    means: dict[str, dict[str, Means]],
    pictures: bytes,
    boxes: bytes,
    components: bytes,
    curve: bytes,
) -> None:
    rows = [
        [
            name,
            *(f"{100 * m.dice:.1f}" for m in own.values()),
            *(f"{m.penalized_hd95_mm:.1f}" for m in own.values()),
        ]
        for name, own in means.items()
    ]
    columns = [
        "model",
        *(f"Dice {r} (%)" for r in preset.data.regions),
        *(f"HD95 {r} (mm)" for r in preset.data.regions),
    ]
    changes = " ".join(f"--set {setting}" for setting in SETTINGS)
    commands = [
        "factorizer data synth brats -o data --cases 50 --size 48",
        f"factorizer train --preset brats --data data --fold 0 --out run {changes}",
        "factorizer predict -i data -o predictions --run run/fold0",
        "factorizer evaluate -p predictions -r data --preset brats -o scores.csv",
        "factorizer explain --model run/fold0 -i data -o components",
    ]
    parts = [
        page.paragraph(
            "A small Swin Factorizer, trained for a few minutes on 40 synthetic brains with "
            "tumours, on 10 that it has not seen, beside a logistic regression on single voxels."
        ),
        page.table(columns, rows),
        page.image(pictures, "segmentations of four unseen cases, from the worst to the best"),
        page.note("Four unseen cases from the worst to the best by mean Dice of the two models."),
        page.image(boxes, "box plots of Dice"),
        page.heading("What the first and the last layer see"),
        page.image(components, "spatial components of two NMF layers"),
        page.note(
            "The last of the four cases, which is the best. Over each picture the region it agrees "
            "with best, and the Dice of its best threshold."
        ),
        page.heading("Training"),
        page.image(curve, "learning curve"),
        page.heading("The same by hand"),
        page.code("\n".join(commands)),
        page.note(
            "These predict and score all 50 cases; the table above, and run/fold0/scores.csv, have "
            "the 10 unseen."
        ),
        page.note(
            "Research software, not a medical device. The scans are synthetic; no patient is shown."
        ),
    ]
    write_atomically(file, page.make_page("Factorizer on synthetic brain tumours", parts))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
