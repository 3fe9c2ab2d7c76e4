"""Segmentations side by side (Fig. 5): a row per case and a column per system."""

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
    """A case in canonical orientation: one channel, the reference if known, and predictions.

    The predictions are label maps by the name of the system.
    """

    case: str
    image: Array
    reference: Array | None
    predictions: Mapping[str, Array]
    spacing_mm: Sequence[float] = (1.0, 1.0, 1.0)


def draw_examples(examples: Sequence[Example], *, targets: Targets) -> bytes:
    """A PNG of one axial slice of each case, where the reference is largest.

    Without a reference it is the slice where most was predicted. With one, the mean Dice of the
    whole case is in the corner.
    """
    systems = list(examples[0].predictions)
    scored = any(example.reference is not None for example in examples)
    columns = [*(["ground truth"] if scored else []), *systems, "image"]
    figure = Figure(
        figsize=(2.1 * len(columns), 2.2 * len(examples) + 0.5),
        layout="constrained",
        facecolor="black",
    )
    panels = figure.subplots(len(examples), len(columns), squeeze=False)
    for row, example in zip(panels, examples, strict=True):
        draw_example(row, example, targets, with_reference=scored)
    for panel, title in zip(panels[0], columns, strict=True):
        panel.set_title(escape_label(title), color="white", size=9)
    draw_meaning(figure, targets, scored=scored)
    return png(figure)


def draw_example(
    panels: Sequence[Axes], example: Example, targets: Targets, *, with_reference: bool
) -> None:
    """A row: the reference if the figure has some, the predictions, and the image alone."""
    maps: list[Array | None] = [example.reference] if with_reference else []
    maps += [*example.predictions.values(), None]
    guide = guide_of(example)
    grey = grey_slice(example.image, guide)
    spacing_mm = example.spacing_mm
    aspect = spacing_mm[1] / spacing_mm[0] if len(spacing_mm) == 3 else 1.0
    for panel, label_map in zip(panels, maps, strict=True):
        shown = np.repeat(grey[..., None], 3, axis=-1)
        if label_map is not None:
            labels, _ = pick_slice(label_map[None], guide)
            shown = paint(shown, labels[0], targets.labels, label_colors(targets.labels))
        panel.imshow(shown, interpolation="nearest", aspect=aspect)
        panel.set_axis_off()
    absent = ", no reference" if with_reference and example.reference is None else ""
    write_over(panels[0], escape_label(example.case) + absent, size=7)
    if example.reference is not None:
        for panel, prediction in zip(panels[1:], example.predictions.values(), strict=False):
            score = 100 * mean_dice(prediction, example.reference, targets)
            write_over(panel, f"{score:.1f}", size=9)


def grey_slice(image: Array, guide: Array) -> Array:
    """A slice with values from 0 to 1. The contrast is that of the whole image."""
    shown, _ = pick_slice(image[None], guide)
    inside = image[image != 0]
    low, high = np.percentile(inside, (1, 99.5)) if inside.size else (0.0, 1.0)
    dark = min(low, 0)
    return np.clip((shown[0] - dark) / max(high - dark, 1e-8), 0, 1)


def guide_of(example: Example) -> Array:
    """The mask that decides which slice is shown."""
    if example.reference is not None:
        return example.reference
    return np.any([label_map > 0 for label_map in example.predictions.values()], axis=0)


def draw_meaning(figure: Figure, targets: Targets, *, scored: bool) -> None:
    """The legend: colours of labels, regions of several labels, and what the numbers are."""
    labels = {escape_label(name): value for name, value in targets.labels.items()}
    legend = draw_legend(figure, labels, text_color="white")
    lines = []
    for region, names in targets.regions.items():
        if [region] != list(names):
            lines.append(f"{region} = {' + '.join(names)}")
    lines.append("number: mean Dice (%) of the case" if scored else "no references")
    legend.set_title("   ".join(map(escape_label, lines)))
    legend.get_title().set(color="white", size=7)


def write_over(panel: Axes, text: str, *, size: float) -> None:
    """Text in the corner, white with a black rim, so that it is legible on any tissue."""
    panel.text(
        0.02,
        0.03,
        text,
        color="white",
        size=size,
        weight="bold",
        transform=panel.transAxes,
        path_effects=[withStroke(linewidth=2, foreground="black")],
    )


def paint(
    image: Array, label_map: Array, labels: Mapping[str, int], colors: Mapping[str, str]
) -> Array:
    """Labels in their colours over a grey image (H, W, 3)."""
    for name, value in labels.items():
        where = label_map == value
        image[where] = (1 - OPACITY) * image[where] + OPACITY * np.array(to_rgb(colors[name]))
    return image


def mean_dice(prediction: Array, reference: Array, targets: Targets) -> float:
    """The mean Dice over regions."""
    pairs = zip(targets.masks(prediction), targets.masks(reference), strict=True)
    return float(np.mean([dice(ours, theirs) for ours, theirs in pairs]))


def spread(scores: Mapping[str, float], count: int) -> list[str]:
    """Cases from the worst to the best at equal steps of rank, so that nobody chooses the best."""
    order = sorted(scores, key=lambda case: (scores[case], case))
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    return [order[place] for place in dict.fromkeys(places.tolist())]
