"""A progress that counts the steps of its bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from factorizer.progress import Progress, Task


class CountedBars(Progress):
    """Keeps for each bar how many steps were done, and the total."""

    def __init__(self) -> None:
        self.done: dict[str, tuple[int, int | None]] = {}

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Task]:
        bar = CountedBar()
        yield bar
        self.done[label] = (bar.steps, total)


class CountedBar(Task):
    def __init__(self) -> None:
        self.steps = 0

    def advance(self, steps: int = 1) -> None:
        self.steps += steps
