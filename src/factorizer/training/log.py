"""The log of a fold: log/metrics.csv, and events for TensorBoard if that is installed.

The table has a row for every tenth step and for every validation. Each row exists once, even if the
training was interrupted. A row is on disk before the checkpoint of its step. So a resumed training
keeps the rows of the steps before.
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
LOGGED = ("loss", "gradient_norm", "learning_rate")  # for a step


def make_loggers(fold: Fold, start_step: int) -> list[Logger]:
    """The table of metrics, and events for TensorBoard if that is installed."""
    loggers: list[Logger] = [MetricsLog(fold.log_file, start_step)]
    if find_spec("tensorboard"):
        loggers.append(TensorBoardLogger(fold.path, name=fold.log_file.parent.name, version=""))
    return loggers


class MetricsLog(Logger):
    """A table of metrics. Rows before `start_step` are kept. Later steps are made again."""

    def __init__(self, file: Path, start_step: int) -> None:
        super().__init__()
        self.file = file
        before = read_log(file) if start_step else []
        self.rows: list[Row] = [row for row in before if int(row["step"]) < start_step]
        self.columns: list[str] = []  # in the file; empty until this logger writes a row

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
        self.columns = sorted(set().union(*self.rows))
        header = ",".join(self.columns) + "\r\n"
        write_atomically(self.file, header + as_lines(self.rows, self.columns))


def as_lines(rows: list[Row], columns: list[str]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns).writerows(rows)
    return text.getvalue()


def read_log(file: Path) -> list[Row]:
    """The rows of a metrics.csv, without empty cells.

    A row that is not made of numbers is left out: a kill may have cut it short.
    """
    if not file.exists():
        return []
    lines = read_text(file).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(("\n", "\r"))]
    try:
        return [row for row in map(numbers_of, csv.DictReader(whole)) if row]
    except csv.Error as error:
        remedy = "remove it; the training does not need it"
        raise FileError(file, f"it is not a table ({error})", remedy) from None


def numbers_of(row: Mapping[str | None, Any]) -> Row:
    """The filled cells of a row, as text. An empty row if one of them is not a number."""
    cells = {name: cell for name, cell in row.items() if name and cell}
    try:
        for cell in cells.values():
            float(cell)
        return cells if int(cells["step"]) >= 0 and None not in row else {}
    except (KeyError, ValueError):
        return {}


class LogSteps(Callback):
    """Log the metrics of a step before other callbacks see its end.

    Lightning would log them later: a training that is killed after a checkpoint would lack the row.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.logged = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.logged = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        step = trainer.global_step
        within_batch = step == self.logged  # of accumulated parts
        if within_batch or step % self.every:
            return
        self.logged = step
        values = {name: float(trainer.callback_metrics[name]) for name in LOGGED}
        for logger in trainer.loggers:
            logger.log_metrics({"epoch": trainer.current_epoch, **values}, step=step - 1)
