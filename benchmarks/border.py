"""Where segmentations of the hippocampus lose Dice: at its outline, or where anterior and posterior
meet.

    factorizer predict --model runs/hippocampus/fold2 -i held-out.csv -o predictions
    python benchmarks/border.py predictions Task04_Hippocampus/labelsTr

The two parts meet in a coronal plane, at a slice that the rater chose. Beside the Dice of both
parts stands that of the whole hippocampus, that of the parts if the plane were known, and by how
many slices the predicted plane is off.
"""

from __future__ import annotations

from math import isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import nibabel
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from factorizer.evaluation.metrics import dice

ANTERIOR, POSTERIOR = 1, 2
Labels = NDArray[np.uint8]  # (left-right, back-front, feet-head)


def main(
    predictions: Annotated[Path, typer.Argument(help="A folder of label maps.")],
    references: Annotated[
        Path, typer.Argument(help="The folder of the references, of the same names.")
    ],
) -> None:
    found = sorted(
        file for file in predictions.glob("*.nii.gz") if (references / file.name).is_file()
    )
    if not found:
        raise typer.BadParameter(f"{predictions} has no .nii.gz of a name that is in {references}")
    rows = [compare(read(file), read(references / file.name)) for file in found]
    console = Console()
    for name in ("Dice of the parts", "Dice of the whole", "Dice of the parts, plane known"):
        console.print(f"{name}: {fmean(row[name] for row in rows):.3f}")
    offsets = [row["offset"] for row in rows if not isnan(row["offset"])]
    console.print(f"cases: {len(rows)}; with both parts, so that there is a plane: {len(offsets)}")
    if len(offsets) > 1:
        console.print(
            f"plane: {fmean(map(abs, offsets)):.2f} slices off, mean {fmean(offsets):+.2f}, "
            f"standard deviation {stdev(offsets):.2f}"
        )


def read(file: Path) -> Labels:
    image: Any = nibabel.as_closest_canonical(
        nibabel.load(file)
    )  # some of the references are stored as float
    return np.rint(np.asanyarray(image.dataobj)).astype(np.uint8)


def compare(predicted: Labels, reference: Labels) -> dict[str, float]:
    plane = first_anterior_slice(reference)
    both_parts = all(
        (labels == part).any()
        for labels in (predicted, reference)
        for part in (ANTERIOR, POSTERIOR)
    )
    front = np.arange(reference.shape[1])[:, None] >= plane
    divided = np.where(predicted > 0, np.where(front, ANTERIOR, POSTERIOR), 0).astype(np.uint8)
    return {
        "Dice of the parts": mean_dice(predicted, reference),
        "Dice of the whole": dice(predicted > 0, reference > 0),
        "Dice of the parts, plane known": mean_dice(divided, reference),
        "offset": float(first_anterior_slice(predicted) - plane) if both_parts else nan,
    }


def mean_dice(predicted: Labels, reference: Labels) -> float:
    return fmean(dice(predicted == part, reference == part) for part in (ANTERIOR, POSTERIOR))


def first_anterior_slice(labels: Labels) -> int:
    """The coronal plane with the fewest voxels on the wrong side of it."""
    anterior, posterior = ((labels == part).sum((0, 2)) for part in (ANTERIOR, POSTERIOR))
    behind = np.concatenate(([0], anterior.cumsum()))  # anterior voxels behind slice 0, 1, ...
    ahead = posterior.sum() - np.concatenate(([0], posterior.cumsum()))
    return int(np.argmin(behind + ahead))


if __name__ == "__main__":
    typer.run(main)
