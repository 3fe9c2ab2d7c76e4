"""Progress on the terminal: lines and bars on standard error, and lines alone in a log file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from factorizer.commands.console import SafeConsole, plain, say
from factorizer.progress import Progress, Task

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import Task as Row
    from rich.progress import TaskID
    from rich.text import Text

FIRST_LINE, LINE_EVERY = 15, 60  # seconds, where progress goes to a file


class ConsoleProgress(Progress):
    """Bars that vanish when their work is done. Several may be shown at a time."""

    def __init__(self) -> None:
        self.bars: Bars | None = None
        self.shown = 0

    def say(self, text: str) -> None:
        say(text)

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Task]:
        if self.bars is None:
            self.bars = make_bars()
            self.bars.start()
        self.shown += 1
        row = self.bars.add_task(label, total=total, state="")
        try:
            yield ConsoleTask(self.bars, row)
        finally:
            self.shown -= 1
            self.bars.remove_task(row)
            if not self.shown:
                self.bars.stop()
                self.bars = None


class ConsoleTask(Task):
    """One bar. Where standard error is not a terminal, a line now and then instead."""

    def __init__(self, bars: Bars, row: TaskID) -> None:
        self.bars, self.row = bars, row
        self.next_line = time.monotonic() + FIRST_LINE

    def advance(self, steps: int = 1) -> None:
        self.bars.advance(self.row, steps)
        self.write_line()

    def update(
        self,
        *,
        label: str | None = None,
        total: int | None = None,
        completed: int | None = None,
        state: str | None = None,
    ) -> None:
        self.bars.update(self.row, description=label, total=total, completed=completed)
        if state is not None:
            self.bars.update(self.row, state=state)
        if label is not None and self.bars.disable:
            say(label)
        self.write_line()

    def write_line(self) -> None:
        """How far it is, if the last line is a minute ago and there is no bar."""
        now = time.monotonic()
        if not self.bars.disable or now < self.next_line:
            return
        self.next_line = now + LINE_EVERY
        row = next(task for task in self.bars.tasks if task.id == self.row)
        far = f"{row.completed:,.0f}" + ("" if row.total is None else f" of {row.total:,.0f}")
        say(f"{row.description}: {far}  {row.fields['state']}".rstrip())


def make_bars() -> Bars:
    """On standard error if it is a terminal, and gone when done."""
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    class Label(ProgressColumn):
        """What is done, or the name of the case at hand."""

        def render(self, task: Row) -> Text:
            return plain(task.description, "progress.description")

    class State(ProgressColumn):
        """A short text such as a loss; otherwise how long it still takes."""

        remaining = TimeRemainingColumn()

        def render(self, task: Row) -> Text:
            state = task.fields["state"]
            return plain(state) if state else self.remaining.render(task)

    console = SafeConsole(stderr=True)
    columns = (Label(), BarColumn(), MofNCompleteColumn(), State())
    return Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
