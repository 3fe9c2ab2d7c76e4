"""The command line's work from Python, on a few tiny synthetic scans: train, predict, evaluate,
compare.

Takes about half a minute; the models are too small and too briefly trained to be good.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nibabel
import numpy as np

import factorizer
from factorizer.data.synthetic import write_synthetic


def main(folder: Path) -> None:
    data = folder / "strokes"
    write_synthetic("isles22", data, cases=6, size=32, seed=0)

    entries = []
    for system in ("swin-factorizer", "nnunet"):
        preset = factorizer.change_preset(
            factorizer.load_preset("isles22"),
            [
                f"model.name={system}",
                "model.widths=[8,16]",
                "model.window=4",
                "data.patch_size=[16,16,16]",
                "training.max_steps=20",
                "training.learning_rate=0.01",
                "training.folds=2",
            ],
        )
        run = factorizer.train_fold(preset, data=data, fold=0, out=folder / system).folder

        model = factorizer.load(run)
        predictions = folder / f"{system} predictions"
        predictions.mkdir()
        for dwi in sorted(data.glob("rawdata/*/*/dwi/*_dwi.nii.gz")):
            files = [dwi, dwi.with_name(dwi.name.replace("_dwi", "_adc"))]
            images = [nibabel.load(file) for file in files]
            stack = np.stack([np.asarray(image.dataobj) for image in images])  # channels first
            labels = model.predict(stack, affine=images[0].affine)
            name = dwi.name.partition("_")[0]
            nibabel.save(
                nibabel.Nifti1Image(labels, images[0].affine), predictions / f"{name}.nii.gz"
            )

        scores = factorizer.evaluate_folders(predictions, data, preset.data).scores
        entries.append(factorizer.Entry(system, scores))

    comparison = factorizer.compare_entries(entries)
    for test in comparison.tests:
        difference = test.difference
        print(
            f"{comparison.reference} against {test.other}: {test.metric} {difference.mean:+.2f}, p "
            f"= {difference.p:.3f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "api-example"))
