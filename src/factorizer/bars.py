"""Progress on the terminal: lines and bars on standard error, and lines alone in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from factorizer.progress import Progress, Task
from factorizer.terminal import SafeConsole, plain, say

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import Task as Row
    from rich.progress import TaskID
    from rich.text import Text

FIRST_LINE = 15  # seconds until the first line of a task in a log file
LINE_EVERY = 60  # seconds between two such lines


class ConsoleProgress(Progress):
    """Bars on standard error that vanish when their work is done. Several may be shown at a time.

    In a log file, a task writes lines in their place: the first after 15 seconds, then one a
    minute. Any function with the parameter `progress` takes one.

    Args:
        clock: A function that returns the time in seconds.

    Example:
        >>> bars = factorizer.ConsoleProgress()
        >>> factorizer.make_synthetic("isles22", Path("shown"), cases=1, size=24, progress=bars)
        ['sub-strokecase0001']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.bars: Bars | None = None
        self.shown = 0

    def say(self, text: str) -> None:
        """Print a line, above the bars if some are shown."""
        say(text, self.bars.console if self.bars else None)

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Task]:
        if self.bars is None:
            self.bars = make_bars()
            self.bars.start()
        self.shown += 1
        row = self.bars.add_task(label, total=total, state="")
        try:
            yield ConsoleTask(self.bars, row, self.clock)
        finally:
            self.shown -= 1
            self.bars.remove_task(row)
            if not self.shown:
                self.bars.stop()
                self.bars = None


class ConsoleTask(Task):
    """One bar, or lines in its place if standard error is not a terminal."""

    def __init__(self, bars: Bars, row: TaskID, clock: Callable[[], float]) -> None:
        self.bars = bars
        self.row = row
        self.clock = clock
        self.next_line = clock() + FIRST_LINE

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
        """Say how much is done, if there is no bar and the last line was a minute ago."""
        now = self.clock()
        if not self.bars.disable or now < self.next_line:
            return
        self.next_line = now + LINE_EVERY
        row = next(task for task in self.bars.tasks if task.id == self.row)
        done = f"{row.completed:,.0f}"
        if row.total is not None:
            done += f" of {row.total:,.0f}"
        say(f"{row.description}: {done}  {row.fields['state']}".rstrip())


def make_bars() -> Bars:
    """Bars on standard error, if it is a terminal. They vanish at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    class Label(ProgressColumn):
        """The work, or the name of the current case."""

        def render(self, task: Row) -> Text:
            return plain(task.description, "progress.description")

    class State(ProgressColumn):
        """A short text such as a loss. Without one, the time that is left."""

        remaining = TimeRemainingColumn()

        def render(self, task: Row) -> Text:
            state = task.fields["state"]
            return plain(state) if state else self.remaining.render(task)

    console = SafeConsole(stderr=True)
    columns = (Label(), BarColumn(), MofNCompleteColumn(), State())
    return Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
