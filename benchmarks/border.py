"""Where segmentations of the hippocampus lose Dice: at its outline, or between its two parts.

    factorizer predict --model runs/hippocampus/fold2 -i held-out.csv -o predictions
    python benchmarks/border.py predictions Task04_Hippocampus/labelsTr

The anterior and the posterior part meet in a coronal plane, at a slice that the rater chose. The
output has the Dice of both parts, of the whole hippocampus, and of the parts if the plane were
known. It also says by how many slices the predicted plane is off.
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
PARTS = (ANTERIOR, POSTERIOR)
Labels = NDArray[np.uint8]  # (left-right, back-front, feet-head)


def main(
    predictions: Annotated[Path, typer.Argument(help="A folder of label maps.")],
    references: Annotated[
        Path, typer.Argument(help="A folder of references with the same file names.")
    ],
) -> None:
    found = sorted(
        file for file in predictions.glob("*.nii.gz") if (references / file.name).is_file()
    )
    if not found:
        raise typer.BadParameter(f"{predictions} and {references} have no .nii.gz file in common")
    rows = [compare(read(file), read(references / file.name)) for file in found]
    console = Console()
    for name in ("Dice of the parts", "Dice of the whole", "Dice of the parts, plane known"):
        console.print(f"{name}: {fmean(row[name] for row in rows):.3f}")
    offsets = [row["offset"] for row in rows if not isnan(row["offset"])]
    console.print(f"cases: {len(rows)}; with both parts, and so with a plane: {len(offsets)}")
    if len(offsets) > 1:
        console.print(
            f"plane: {fmean(map(abs, offsets)):.2f} slices off, mean {fmean(offsets):+.2f}, "
            f"standard deviation {stdev(offsets):.2f}"
        )


def read(file: Path) -> Labels:
    """The labels of a file; some references are stored as floats."""
    image: Any = nibabel.as_closest_canonical(nibabel.load(file))
    return np.rint(np.asanyarray(image.dataobj)).astype(np.uint8)


def compare(predicted: Labels, reference: Labels) -> dict[str, float]:
    """The three Dice values of a case and the offset of the plane, nan if a part is missing."""
    plane = first_anterior_slice(reference)
    both_parts = has_both_parts(predicted) and has_both_parts(reference)
    front = np.arange(reference.shape[1])[:, None] >= plane
    divided = np.where(predicted > 0, np.where(front, ANTERIOR, POSTERIOR), 0).astype(np.uint8)
    return {
        "Dice of the parts": mean_dice(predicted, reference),
        "Dice of the whole": dice(predicted > 0, reference > 0),
        "Dice of the parts, plane known": mean_dice(divided, reference),
        "offset": float(first_anterior_slice(predicted) - plane) if both_parts else nan,
    }


def has_both_parts(labels: Labels) -> bool:
    return set(PARTS) <= set(np.unique(labels).tolist())


def mean_dice(predicted: Labels, reference: Labels) -> float:
    return fmean(dice(predicted == part, reference == part) for part in PARTS)


def first_anterior_slice(labels: Labels) -> int:
    """The coronal plane with the fewest voxels on the wrong side of it."""
    anterior, posterior = ((labels == part).sum((0, 2)) for part in PARTS)
    behind = np.concatenate(([0], anterior.cumsum()))  # anterior voxels behind slice 0, 1, ...
    ahead = posterior.sum() - np.concatenate(([0], posterior.cumsum()))
    return int(np.argmin(behind + ahead))


if __name__ == "__main__":
    typer.run(main)
