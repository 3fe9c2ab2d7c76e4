"""A page of cases: the slice with most foreground of each, every channel, and the regions drawn on
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from factorizer.data.cases import Cohort
from factorizer.data.images import Array, read_image, read_label

# the paper's colours of oedema, necrosis and enhancing tumour (Fig. 5), then others
COLORS = ("#2ca02c", "#e31a1c", "#ffdd33", "#1f77b4", "#ff7f0e", "#9467bd", "#17becf")


def draw_contact_sheet(cohort: Cohort, names: Sequence[str], channels: Sequence[str]) -> bytes:
    """A PNG with one row per case and one column per channel, the last with the label on it."""
    columns = len(channels) + 1
    figure = Figure(figsize=(2.2 * columns, 2.3 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), columns, squeeze=False)
    colors = {cohort.labels[name]: color for name, color in label_colors(cohort.labels).items()}
    palette = [colors.get(value, "#000000") for value in range(1, max(cohort.labels.values()) + 1)]
    for row, name in enumerate(names):
        case = cohort.case(name)
        volume = read_image(case, channels)
        label = (
            read_label(case, cohort.label_values, volume.grid)
            if case.label
            else np.zeros(volume.array.shape[1:])
        )
        image, mask = pick_slice(volume.array, label)
        for column, picture in enumerate([*image, image[0]]):
            panel = axes[row, column]
            low, high = np.percentile(picture[picture != 0], (1, 99)) if picture.any() else (0, 1)
            panel.imshow(picture, cmap="gray", vmin=min(low, 0), vmax=high)
            panel.set_axis_off()
            if row == 0:
                panel.set_title(
                    "label" if column == len(channels) else channels[column], fontsize=9
                )
        highest = max(cohort.labels.values())
        style = {
            "cmap": ListedColormap(palette),
            "vmin": 1,
            "vmax": highest,
            "interpolation": "nearest",
        }
        axes[row, -1].imshow(np.ma.masked_equal(mask, 0), alpha=0.6, **style)
        axes[row, 0].text(
            -0.04, 0.5, name, rotation=90, ha="right", va="center", transform=axes[row, 0].transAxes
        )
    draw_legend(figure, cohort.labels, text_color="black")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def label_colors(labels: Mapping[str, int]) -> dict[str, str]:
    """A colour per label, in the order of their values; a single one is red."""
    names = sorted(labels, key=lambda name: labels[name])
    palette = COLORS if len(names) > 1 else COLORS[1:]
    return {name: palette[index % len(palette)] for index, name in enumerate(names)}


def draw_legend(figure: Figure, labels: Mapping[str, int], *, text_color: str) -> Legend:
    """Which colour is which label, below a figure."""
    handles = [Patch(color=color, label=name) for name, color in label_colors(labels).items()]
    style = {
        "ncols": min(len(handles), 7),
        "frameon": False,
        "labelcolor": text_color,
        "fontsize": 8,
    }
    return figure.legend(handles=handles, loc="outside lower center", **style)


def pick_slice(image: Array, label: Array) -> tuple[Array, Array]:
    """What to show of a case (C, *spatial), as rows and columns of a picture.

    Of a volume the axial slice with most foreground, or the middle one where there is none, with
    the patient's left on the left and the front on top; a 2D image is shown as it is.
    """
    if label.ndim == 2:
        return image, label
    counts = np.count_nonzero(label, axis=(0, 1))
    place = int(counts.argmax()) if counts.any() else label.shape[2] // 2
    image, label = image[..., place], label[..., place]
    return image.swapaxes(1, 2)[:, ::-1], label.swapaxes(0, 1)[::-1]
