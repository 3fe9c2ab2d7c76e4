"""The learning curve of a run: loss and validation Dice against steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

from matplotlib.figure import Figure


def draw_curve(lines: Sequence[Mapping[str, str]]) -> bytes:
    """A PNG of the lines of a training's log."""
    dice = sorted({name for line in lines for name in line if name.startswith("val_dice")})
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, names, title in (
        (panels[0], ["loss"], "training loss"),
        (panels[1], dice, "validation Dice"),
    ):
        for name in names:
            points = [(int(line["step"]), float(line[name])) for line in lines if line.get(name)]
            steps, values = [step for step, _ in points], [value for _, value in points]
            panel.plot(steps, values, label=name, marker="." if len(points) < 30 else "")
        panel.set_title(title)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    if dice:
        panels[1].legend(frameon=False)
    else:
        panels[1].text(0.5, 0.5, "not validated", ha="center", transform=panels[1].transAxes)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
