"""The figure of components (Fig. 6): channels and reference on the left, a row per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from factorizer.figures.boxes import png
from factorizer.figures.contact_sheet import draw_legend, label_colors, pick_slice
from factorizer.figures.escapes import escape_label
from factorizer.figures.qualitative import paint

Array = NDArray[Any]
SHOWN = 8  # components of a layer
GAP = 0.12  # between the left and the components, in widths of a panel


@dataclass(frozen=True, eq=False)
class Row:
    """A layer of a model: its components (components, *spatial), and a caption for each."""

    title: str
    components: Array
    captions: Sequence[str]


def draw_components(
    image: Array,
    channels: Sequence[str],
    reference: Array | None,
    labels: Mapping[str, int],
    rows: Sequence[Row],
) -> bytes:
    """A PNG of one slice of a case (C, *spatial): where the reference is largest, or without a
    reference the image."""
    guide = reference if reference is not None and reference.any() else np.any(image, axis=0)
    left = draw_left(image, channels, reference, labels, guide)
    columns = max(min(SHOWN, len(row.components)) for row in rows)
    left_columns = -(-len(left) // len(rows))
    legend_height = 0.3 if reference is not None else 0.0
    size = (1.7 * (left_columns + columns) + 0.4, 1.95 * len(rows) + legend_height)
    figure = Figure(figsize=size, layout="constrained", facecolor="black")
    if reference is not None:
        draw_legend(figure, labels, text_color="white")
    panels = figure.subplots(
        len(rows),
        left_columns + 1 + columns,
        squeeze=False,
        width_ratios=[1] * left_columns + [GAP] + [1] * columns,
    )
    for panel in panels.flat:
        panel.set_axis_off()
    for panel, (name, shown) in zip(panels[:, :left_columns].flat, left.items(), strict=False):
        panel.imshow(shown, cmap="gray", vmin=0, vmax=1)
        panel.set_title(escape_label(name), color="white", size=8)
    for line, row in zip(panels[:, left_columns + 1 :], rows, strict=True):
        draw_row(line, row, guide)
    return png(figure)


def draw_left(
    image: Array,
    channels: Sequence[str],
    reference: Array | None,
    labels: Mapping[str, int],
    guide: Array,
) -> dict[str, Array]:
    """The slices on the left by title: every channel, and the reference on the first channel."""
    slices = [grey(cut(channel, guide)) for channel in image]
    left = dict(zip(channels, slices, strict=True))
    if reference is not None:
        color = np.repeat(slices[0][..., None], 3, axis=-1)
        left["ground truth"] = paint(color, cut(reference, guide), labels, label_colors(labels))
    return left


def draw_row(panels: Sequence[Axes], row: Row, guide: Array) -> None:
    """The components of a layer with their captions, and the title of the layer before them."""
    for panel, component, caption in zip(panels, row.components, row.captions, strict=False):
        panel.imshow(grey(cut(component, guide)), cmap="inferno", vmin=0, vmax=1)
        panel.set_title(escape_label(caption), color="white", size=7)
    first = panels[0]
    first.text(
        -0.04,
        0.5,
        "\n".join(map(escape_label, row.title.splitlines())),
        transform=first.transAxes,
        rotation=90,
        ha="right",
        va="center",
        color="white",
        size=7,
    )


def cut(volume: Array, guide: Array) -> Array:
    """The slice of a volume where the guide is largest."""
    return pick_slice(volume[None], guide)[0][0]


def grey(image: Array) -> Array:
    """Values from 0 to 1. The lowest negative value becomes 0, zeros stay 0, and the brightest
    hundredth is cut off."""
    lowest = min(0.0, float(image.min()))
    image = np.where(image == 0, 0, image - lowest)
    bright = image[image > 0]
    high = np.percentile(bright, 99) if bright.size else 1.0
    return np.clip(image / max(high, 1e-12), 0, 1)
