"""The HTML page of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from factorizer.evaluation.scores import Means
from factorizer.reports import page

TITLE = "Factorizer on synthetic brain tumours"
INTRODUCTION = (
    "A small Swin Factorizer was trained for a few minutes on 40 synthetic brains with tumours. "
    "Here it segments 10 brains that it has not seen, beside a logistic regression on single "
    "voxels."
)


@dataclass(frozen=True)
class Figures:
    """The PNG images of the page."""

    segmentations: bytes
    boxes: bytes
    components: bytes
    curve: bytes


def make_page(
    means: Mapping[str, Mapping[str, Means]], figures: Figures, changes: Sequence[str]
) -> str:
    """The whole page. `means` are by model and region."""
    parts = [
        page.paragraph(INTRODUCTION),
        scores_table(means),
        page.image(
            figures.segmentations, "segmentations of four unseen cases, from the worst to the best"
        ),
        page.note("Four unseen cases from the worst to the best by mean Dice of the two models."),
        page.image(figures.boxes, "box plots of Dice"),
        page.heading("What the first and the last layer see"),
        page.image(figures.components, "spatial components of two NMF layers"),
        page.note(
            "The best of the four cases. Above each component is the region that it agrees with "
            "best, and the Dice at its best threshold."
        ),
        page.heading("Training"),
        page.image(figures.curve, "learning curve"),
        page.heading("The same by hand"),
        page.code("\n".join(list_commands(changes))),
        page.note(
            "These commands predict and score all 50 cases. The table above and "
            "run/fold0/scores.csv have the 10 unseen cases."
        ),
        page.note(
            "Research software, not a medical device. The scans are synthetic; no patient is shown."
        ),
    ]
    return page.make_page(TITLE, parts)


def scores_table(means: Mapping[str, Mapping[str, Means]]) -> str:
    """Dice and HD95 of every region, a row per model."""
    regions = list(next(iter(means.values())))
    columns = ["model"]
    columns += [f"Dice {region} (%)" for region in regions]
    columns += [f"HD95 {region} (mm)" for region in regions]
    rows = []
    for name, own in means.items():
        cells = [name]
        cells += [f"{100 * own[region].dice:.1f}" for region in regions]
        cells += [f"{own[region].penalized_hd95_mm:.1f}" for region in regions]
        rows.append(cells)
    return page.table(columns, rows)


def list_commands(changes: Sequence[str]) -> list[str]:
    options = " ".join(f"--set {change}" for change in changes)
    return [
        "factorizer data synth brats -o data --cases 50 --size 48",
        f"factorizer train --preset brats --data data --fold 0 -o run {options}",
        "factorizer predict -i data -o predictions --model run/fold0",
        "factorizer evaluate -p predictions -r data --preset brats -o scores.csv",
        "factorizer explain --model run/fold0 -i data -o components",
    ]
