"""The figure of components (Fig. 6): modalities and reference on the left, a row of pictures per
model and layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from factorizer.figures.boxes import png
from factorizer.figures.contact_sheet import draw_legend, label_colors, pick_slice
from factorizer.figures.escapes import escape_label
from factorizer.figures.qualitative import paint

Array = NDArray[Any]
SHOWN = 8  # pictures of a layer


@dataclass(frozen=True, eq=False)
class Row:
    """A layer of a model: its pictures (pictures, *spatial), and a word about each."""

    title: str
    pictures: Array
    captions: Sequence[str]


def draw_components(
    image: Array,
    channels: Sequence[str],
    reference: Array | None,
    labels: Mapping[str, int],
    rows: Sequence[Row],
) -> bytes:
    """Of a case (C, *spatial) the slice where the reference, or else the image, is largest."""
    guide = reference if reference is not None and reference.any() else np.any(image, axis=0)
    slices = [grey(pick_slice(channel[None], guide)[0][0]) for channel in image]
    left = dict(zip(channels, slices, strict=True))
    if reference is not None:
        shown = pick_slice(reference[None], guide)[0][0]
        left["ground truth"] = paint(
            np.repeat(slices[0][..., None], 3, -1), shown, labels, label_colors(labels)
        )
    columns, lines = max(min(SHOWN, len(row.pictures)) for row in rows), len(rows)
    left_columns = -(-len(left) // lines)
    size = (1.7 * (left_columns + columns) + 0.4, 1.95 * lines + 0.3 * (reference is not None))
    figure = Figure(figsize=size, layout="constrained", facecolor="black")
    if reference is not None:
        draw_legend(figure, labels, text_color="white")
    panels = figure.subplots(
        lines,
        left_columns + 1 + columns,
        squeeze=False,
        width_ratios=[1] * left_columns + [0.12] + [1] * columns,
    )
    for panel in panels.flat:
        panel.set_axis_off()
    for panel, (name, picture) in zip(panels[:, :left_columns].flat, left.items(), strict=False):
        panel.imshow(picture, cmap="gray", vmin=0, vmax=1)
        panel.set_title(escape_label(name), color="white", size=8)
    for line, row in zip(panels[:, left_columns + 1 :], rows, strict=True):
        for panel, picture, caption in zip(line, row.pictures, row.captions, strict=False):
            panel.imshow(
                grey(pick_slice(picture[None], guide)[0][0]), cmap="inferno", vmin=0, vmax=1
            )
            panel.set_title(escape_label(caption), color="white", size=7)
        style = {"rotation": 90, "ha": "right", "va": "center", "color": "white", "size": 7}
        title = "\n".join(map(escape_label, row.title.splitlines()))
        line[0].text(-0.04, 0.5, title, transform=line[0].transAxes, **style)
    return png(figure)


def grey(picture: Array) -> Array:
    """From 0, or from the least where a channel is negative, to 1; the brightest hundredth is cut
    off."""
    picture = np.where(
        picture == 0, 0, picture - min(0.0, float(picture.min()))
    )  # nothing outside stays nothing
    high = np.percentile(picture[picture > 0], 99) if (picture > 0).any() else 1.0
    return np.clip(picture / max(high, 1e-12), 0, 1)
