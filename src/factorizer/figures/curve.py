"""The learning curve of a fold: loss and validation Dice against steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Lines = Sequence[Mapping[str, str]]  # of a training's log
FEW = 30  # points that are marked


def draw_curve(lines: Lines) -> bytes:
    """A PNG of the lines of a training's log."""
    names: set[str] = set().union(*lines)
    dice = sorted(name for name in names if name.startswith("val_dice"))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_panel(left, lines, ["loss"], "training loss")
    draw_panel(right, lines, dice, "validation Dice")
    if dice:
        right.legend(frameon=False)
    else:
        right.text(0.5, 0.5, "not validated", ha="center", transform=right.transAxes)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def draw_panel(panel: Axes, lines: Lines, names: Sequence[str], title: str) -> None:
    """A line per column of the log."""
    for name in names:
        known = [line for line in lines if line.get(name)]
        steps = [int(line["step"]) for line in known]
        values = [float(line[name]) for line in known]
        panel.plot(steps, values, label=name, marker="." if len(known) < FEW else "")
    panel.set_title(title)
    panel.set_xlabel("step")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
