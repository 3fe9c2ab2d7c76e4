"""Segmentations side by side (Fig. 5): rows of cases, the reference first if there is one, then a
column per system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from factorizer.evaluation.metrics import dice
from factorizer.figures.boxes import png
from factorizer.figures.contact_sheet import draw_legend, label_colors, pick_slice
from factorizer.figures.escapes import escape_label
from factorizer.targets import Targets

Array = NDArray[Any]
OPACITY = 0.55


@dataclass(frozen=True, eq=False)
class Example:
    """A case in canonical orientation: one channel to draw on, its reference if there is one, and
    the systems' label maps."""

    case: str
    image: Array
    reference: Array | None
    predictions: Mapping[str, Array]
    spacing_mm: Sequence[float] = (1.0, 1.0, 1.0)


def draw_examples(examples: Sequence[Example], *, targets: Targets) -> bytes:
    """The axial slice where the reference, or without one what was predicted, is largest; where
    there is a reference with the mean Dice of the whole case in the corner."""
    systems = list(examples[0].predictions)
    scored = any(example.reference is not None for example in examples)
    columns = [*(["ground truth"] if scored else []), *systems, "image"]
    figure = Figure(
        figsize=(2.1 * len(columns), 2.2 * len(examples) + 0.5),
        layout="constrained",
        facecolor="black",
    )
    panels = figure.subplots(len(examples), len(columns), squeeze=False)
    labels = targets.labels
    colors = label_colors(labels)
    for row, example in zip(panels, examples, strict=True):
        maps: list[Array | None] = [example.predictions[name] for name in systems]
        guide = guide_of(example)
        image, _ = pick_slice(example.image[None], guide)
        inside = example.image[example.image != 0]
        low, high = np.percentile(inside, (1, 99.5)) if inside.size else (0.0, 1.0)
        grey = np.clip((image[0] - min(low, 0)) / max(high - min(low, 0), 1e-8), 0, 1)
        aspect = (
            example.spacing_mm[1] / example.spacing_mm[0] if len(example.spacing_mm) == 3 else 1.0
        )
        before = [example.reference] if scored else []
        for panel, label_map in zip(row, [*before, *maps, None], strict=True):
            picture = np.repeat(grey[..., None], 3, axis=-1)
            if label_map is not None:
                shown, _ = pick_slice(label_map[None], guide)
                picture = paint(picture, shown[0], labels, colors)
            panel.imshow(picture, interpolation="nearest", aspect=aspect)
            panel.set_axis_off()
        absent = ", no reference" if scored and example.reference is None else ""
        write_over(row[0], escape_label(example.case) + absent, size=7)
        if example.reference is None:
            continue
        for panel, name in zip(row[1:], systems, strict=False):
            score = 100 * mean_dice(example.predictions[name], example.reference, targets)
            write_over(panel, f"{score:.1f}", size=9)
    for panel, title in zip(panels[0], columns, strict=True):
        panel.set_title(escape_label(title), color="white", size=9)
    unions = [
        f"{region} = {' + '.join(names)}"
        for region, names in targets.regions.items()
        if [region] != list(names)
    ]
    legend = draw_legend(
        figure, {escape_label(name): value for name, value in labels.items()}, text_color="white"
    )
    meaning = ["number: mean Dice (%) of the case"] if scored else ["no references"]
    legend.set_title("   ".join(map(escape_label, [*unions, *meaning])))
    legend.get_title().set(color="white", size=7)
    return png(figure)


def guide_of(example: Example) -> Array:
    """What the slice is chosen by."""
    if example.reference is not None:
        return example.reference
    return np.any([label_map > 0 for label_map in example.predictions.values()], axis=0)


def write_over(panel: Axes, text: str, *, size: float) -> None:
    """White with a black rim in the corner, legible on any tissue."""
    rim = [withStroke(linewidth=2, foreground="black")]
    panel.text(
        0.02,
        0.03,
        text,
        color="white",
        size=size,
        weight="bold",
        transform=panel.transAxes,
        path_effects=rim,
    )


def paint(
    picture: Array, label_map: Array, labels: Mapping[str, int], colors: Mapping[str, str]
) -> Array:
    """Labels in their colours over a grey picture (H, W, 3)."""
    for name, value in labels.items():
        where = label_map == value
        picture[where] = (1 - OPACITY) * picture[where] + OPACITY * np.array(to_rgb(colors[name]))
    return picture


def mean_dice(prediction: Array, reference: Array, targets: Targets) -> float:
    """Over regions."""
    pairs = zip(targets.masks(prediction), targets.masks(reference), strict=True)
    return float(np.mean([dice(ours, theirs) for ours, theirs in pairs]))


def spread(scores: Mapping[str, float], count: int) -> list[str]:
    """Cases from the worst to the best at equal steps of rank: no choice of the nicest."""
    order = sorted(scores, key=lambda case: (scores[case], case))
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    return [order[place] for place in dict.fromkeys(places.tolist())]
