"""The signal that ends a command; in a file of its own, which imports nothing, to be ready before
the rest is."""

from __future__ import annotations


class Interrupted(BaseException):
    """A signal that ends a command: Ctrl-C or a polite kill. `said` is whether the user knows how
    to resume."""

    def __init__(self, number: int, *, said: bool = False) -> None:
        super().__init__(number)
        self.number, self.said = int(number), said
