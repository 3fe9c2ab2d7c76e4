"""How a long function tells about its work: one object, silent unless it is a subclass.

`ConsoleProgress` in bars.py is the subclass that the command line passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Task:
    """A piece of work with steps that are counted."""

    def advance(self, steps: int = 1) -> None:
        """Some steps are done."""

    def update(
        self,
        *,
        label: str | None = None,
        total: int | None = None,
        completed: int | None = None,
        state: str | None = None,
    ) -> None:
        """Change what is shown. `state` is a short text after the bar, such as a loss."""


class Progress:
    """Lines and bars. This class shows none of them. A subclass may show some.

    Example:
        >>> class Lines(factorizer.Progress):
        ...     def say(self, text):
        ...         print(text)
        >>> Lines().say("training on 4 cases")
        training on 4 cases
    """

    def say(self, text: str) -> None:
        """A line that the user should read."""

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Task]:
        """A bar while a piece of work is done. Without a total it only shows that work is done."""
        yield Task()

    def track(self, items: Sequence[Item], label: str) -> Iterator[Item]:
        """The items one after the other, with a bar."""
        yield from self.follow(items, label, total=len(items))

    def follow(self, items: Iterable[Item], label: str, *, total: int) -> Iterator[Item]:
        """Like `track`, for items whose number is known beforehand."""
        with self.task(label, total=total) as task:
            for item in items:
                yield item
                task.advance()


SILENT = Progress()
