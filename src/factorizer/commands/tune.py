"""`factorizer tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import (
    add_cells,
    make_table,
    print_json,
    print_table,
    print_text,
    say_written,
)
from factorizer.errors import FactorizerError
from factorizer.terminal import say

if TYPE_CHECKING:
    from factorizer.studies.tuning import Tuning


def tune(
    model: options.Model,
    data: options.Data,
    max_loss: options.MaxLoss = "0.5%",
    limit: options.Limit = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Find settings that make a trained model faster and keep its Dice.

    `predict --speed balanced` and `predict --speed fast` use them.
    """
    from factorizer.studies.tuning import tune

    tuning = tune(
        model,
        data,
        max_loss=parse_loss(max_loss),
        limit=limit,
        device=device,
        progress=ConsoleProgress(),
    )
    for file in tuning.files:
        say_written(file)
    if json:
        print_json({"best": {"dice": tuning.dice}, "speeds": speed_rows(tuning)})
    elif tuning.speeds:
        print_speeds(tuning)
    else:
        print_text(f"No setting saves time within a loss of {max_loss}. The model is unchanged.")


def parse_loss(text: str) -> float:
    """The share in a text such as 0.5% or 0.005."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise FactorizerError(
            f"--max-loss got {text!r}; give a share of Dice such as 0.5% or 0.005"
        ) from None


def speed_rows(tuning: Tuning) -> list[dict[str, Any]]:
    rows = []
    for name, trial in tuning.speeds.items():
        difference = trial.difference
        row = {
            "speed": name,
            "time_ratio": round(trial.time_ratio, 3),
            "dice": trial.dice,
            "difference": difference.mean,
            "ci": [difference.low, difference.high],
            "p": difference.p,
            "setting": trial.name,
        }
        rows.append(row)
    return rows


def print_speeds(tuning: Tuning) -> None:
    table = make_table(("speed", "time", "Dice", "difference [95 %]", "p", "layers"))
    add_cells(table, ["best", "1.00 x", f"{tuning.dice:.4f}", "", "", "as trained"])
    for name, trial in tuning.speeds.items():
        difference = trial.difference
        cells = [
            name,
            f"{trial.time_ratio:.2f} x",
            f"{trial.dice:.4f}",
            f"{difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]",
            f"{difference.p:.2g}",
            trial.name,
        ]
        add_cells(table, cells)
    print_table(table)
    say("The speeds were chosen on these cases, so their Dice is optimistic. best never changes.")
