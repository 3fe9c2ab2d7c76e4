"""Progress that tests listen to."""

from __future__ import annotations

from factorizer.progress import Progress


class Listener(Progress):
    """Keeps the lines that are said in a list."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def say(self, text: str) -> None:
        self.lines.append(text)
