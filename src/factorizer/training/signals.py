"""The exception of a signal that ends a command. It imports nothing, so it is ready at once."""

from __future__ import annotations


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM ended a command. `number` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = int(number)
