"""Train, predict, evaluate and compare from Python, on a few tiny synthetic scans.

It takes about half a minute. The models are too small and too briefly trained to be good.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nibabel
import numpy as np

import factorizer
from factorizer.data.synthetic import write_synthetic

CHANGES = [
    "model.widths=[8,16]",
    "model.window=4",
    "data.patch_size=[16,16,16]",
    "training.max_steps=20",
    "training.learning_rate=0.01",
    "training.folds=2",
]


def main(folder: Path) -> None:
    data = folder / "strokes"
    write_synthetic("isles22", data, cases=6, size=32, seed=0)
    entries = []
    for system in ("swin-factorizer", "nnunet"):
        changes = [f"model.name={system}", *CHANGES]
        preset = factorizer.change_preset(factorizer.load_preset("isles22"), changes)
        run = factorizer.train_fold(preset, data=data, fold=0, out=folder / system).folder
        predictions = folder / f"{system} predictions"
        predict(run, data, predictions)
        scores = factorizer.evaluate_folders(predictions, data, preset.data).scores
        entries.append(factorizer.Entry(system, scores))
    comparison = factorizer.compare_entries(entries)
    for test in comparison.tests:
        difference = test.difference
        print(
            f"{comparison.reference} against {test.other}: {test.metric} {difference.mean:+.2f}, "
            f"p = {difference.p:.3f}"
        )


def predict(run: Path, data: Path, out: Path) -> None:
    """Segment arrays, read and written by your own code."""
    model = factorizer.load(run)
    out.mkdir()
    for dwi in sorted(data.glob("rawdata/*/*/dwi/*_dwi.nii.gz")):
        adc = dwi.with_name(dwi.name.replace("_dwi", "_adc"))
        images = [nibabel.load(dwi), nibabel.load(adc)]
        channels = np.stack([np.asarray(image.dataobj) for image in images])
        labels = model.predict(channels, affine=images[0].affine)
        case = dwi.name.partition("_")[0]
        nibabel.save(nibabel.Nifti1Image(labels, images[0].affine), out / f"{case}.nii.gz")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "api-example"))
