"""The log of a run: log/metrics.csv, a row for every tenth step and for every validation, each
exactly once however often the run was interrupted; and events for TensorBoard beside it where that
is installed.

A row is on disk before the checkpoint of its step is: a run that is resumed keeps the rows of the
steps before.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from factorizer.files import FileError, read_text, write_atomically
from factorizer.runs.fold import Fold

Row = dict[str, Any]
LOGGED = ("loss", "gradient_norm", "learning_rate")  # of a step


def make_loggers(fold: Fold, start_step: int) -> list[Logger]:
    """log/metrics.csv always, events for TensorBoard beside it where that is installed."""
    loggers: list[Logger] = [MetricsLog(fold.log_file, start_step)]
    if find_spec("tensorboard"):
        loggers.append(TensorBoardLogger(fold.path, name=fold.log_file.parent.name, version=""))
    return loggers


class MetricsLog(Logger):
    """A table of metrics. The rows of before `start_step` are kept; others are of steps that are
    made again."""

    def __init__(self, file: Path, start_step: int) -> None:
        super().__init__()
        self.file = file
        self.rows: list[Row] = (
            [row for row in read_log(file) if int(row["step"]) < start_step] if start_step else []
        )
        self.columns: list[str] = []  # of the table on disk; none before the first row is written

    @property
    def name(self) -> str:
        return "log"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if rank_zero_only.rank:
            return
        row = {**metrics, "step": step}
        self.rows.append(row)
        if row.keys() <= set(self.columns):
            with self.file.open("a", newline="") as file:
                file.write(as_lines([row], self.columns))
            return
        self.columns = sorted({name for row in self.rows for name in row})
        header = ",".join(self.columns) + "\r\n"
        write_atomically(self.file, header + as_lines(self.rows, self.columns))


def as_lines(rows: list[Row], columns: list[str]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns).writerows(rows)
    return text.getvalue()


def read_log(file: Path) -> list[Row]:
    """The rows of a metrics.csv, without empty cells; a row that is not one of numbers is left out,
    as a kill may cut the last one short."""
    if not file.exists():
        return []
    lines = read_text(file).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(("\n", "\r"))]
    try:
        return [row for row in map(numbers_of, csv.DictReader(whole)) if row]
    except csv.Error as error:
        raise FileError(
            file, f"it is not a table ({error})", "remove it; the run can do without"
        ) from None


def numbers_of(row: Mapping[str | None, Any]) -> Row:
    """The filled cells of a row, as text; nothing where one is not a number."""
    cells = {name: cell for name, cell in row.items() if name and cell}
    try:
        [float(cell) for cell in cells.values()]
        return cells if int(cells["step"]) >= 0 and None not in row else {}
    except (KeyError, ValueError):
        return {}


class LogSteps(Callback):
    """Log what a step reports before other callbacks see its end: Lightning would do so only after
    them, and a run killed after a checkpoint would lack the row."""

    def __init__(self, every: int) -> None:
        self.every, self.logged = every, 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.logged = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        step = trainer.global_step
        if (
            step == self.logged or step % self.every
        ):  # within an accumulated batch, or between two rows
            return
        self.logged = step
        values = {name: float(trainer.callback_metrics[name]) for name in LOGGED}
        for logger in trainer.loggers:
            logger.log_metrics({"epoch": trainer.current_epoch, **values}, step=step - 1)
