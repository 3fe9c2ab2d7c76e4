"""A page of cases: one slice of each, every channel, and the labels on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from factorizer.data.cases import Cohort
from factorizer.data.images import Array, read_image, read_label

# the paper's colours of oedema, necrosis and enhancing tumour (Fig. 5), then others
COLORS = ("#2ca02c", "#e31a1c", "#ffdd33", "#1f77b4", "#ff7f0e", "#9467bd", "#17becf")
MOST_COLUMNS = 7  # of a legend


def draw_contact_sheet(cohort: Cohort, names: Sequence[str], channels: Sequence[str]) -> bytes:
    """A PNG with a row per case and a column per channel. The last column shows the labels."""
    columns = len(channels) + 1
    figure = Figure(figsize=(2.2 * columns, 2.3 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), columns, squeeze=False)
    for panels, name in zip(axes, names, strict=True):
        draw_case(panels, cohort, name, channels)
    for panel, title in zip(axes[0], [*channels, "label"], strict=True):
        panel.set_title(title, fontsize=9)
    draw_legend(figure, cohort.labels, text_color="black")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def draw_case(panels: Sequence[Axes], cohort: Cohort, name: str, channels: Sequence[str]) -> None:
    """A row: every channel of a case, and the first one again with the labels on it."""
    case = cohort.case(name)
    volume = read_image(case, channels)
    label = np.zeros(volume.array.shape[1:])
    if case.label:
        label = read_label(case, cohort.label_values, volume.grid)
    image, mask = pick_slice(volume.array, label)
    for panel, shown in zip(panels, [*image, image[0]], strict=True):
        low, high = np.percentile(shown[shown != 0], (1, 99)) if shown.any() else (0, 1)
        panel.imshow(shown, cmap="gray", vmin=min(low, 0), vmax=high)
        panel.set_axis_off()
    panels[-1].imshow(
        np.ma.masked_equal(mask, 0),
        alpha=0.6,
        cmap=label_colormap(cohort.labels),
        vmin=1,
        vmax=max(cohort.labels.values()),
        interpolation="nearest",
    )
    first = panels[0]
    first.text(-0.04, 0.5, name, rotation=90, ha="right", va="center", transform=first.transAxes)


def label_colormap(labels: Mapping[str, int]) -> ListedColormap:
    """The colours of the values from 1 to the highest label."""
    colors = {labels[name]: color for name, color in label_colors(labels).items()}
    highest = max(labels.values())
    return ListedColormap([colors.get(value, "#000000") for value in range(1, highest + 1)])


def label_colors(labels: Mapping[str, int]) -> dict[str, str]:
    """A colour per label, in the order of their values. A single label is red."""
    names = sorted(labels, key=lambda name: labels[name])
    palette = COLORS if len(names) > 1 else COLORS[1:]
    return {name: palette[index % len(palette)] for index, name in enumerate(names)}


def draw_legend(figure: Figure, labels: Mapping[str, int], *, text_color: str) -> Legend:
    """The colour of each label, below a figure."""
    handles = [Patch(color=color, label=name) for name, color in label_colors(labels).items()]
    return figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), MOST_COLUMNS),
        frameon=False,
        labelcolor=text_color,
        fontsize=8,
    )


def pick_slice(image: Array, label: Array) -> tuple[Array, Array]:
    """The slice of a case (C, *spatial) to show, as rows and columns, and that of its label.

    Of a volume it is the axial slice with most labelled voxels, or the middle one if there are
    none. The patient's left is on the left, and the front on top. A 2D image is shown as it is.
    """
    if label.ndim == 2:
        return image, label
    counts = np.count_nonzero(label, axis=(0, 1))
    place = int(counts.argmax()) if counts.any() else label.shape[2] // 2
    image, label = image[..., place], label[..., place]
    return image.swapaxes(1, 2)[:, ::-1], label.swapaxes(0, 1)[::-1]
