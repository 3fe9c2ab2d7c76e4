"""How long a training still takes, told from its own steps and validations."""

from __future__ import annotations

from collections import deque
from math import ceil

SLOW_STEPS = 3  # at the start: workers and memory are being set up
RECENT = 100  # steps whose mean is taken, so that a machine that becomes busy is noticed
FORWARD_SHARE = 0.3  # of a training step, that computing one of its patches without gradients takes


def in_words(seconds: float) -> str:
    """40 s, 3 min 10 s, 25 min, 2 h 5 min, 3 days 4 h."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    if seconds < 595:
        minutes, rest = divmod(10 * round(seconds / 10), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, hours = divmod(round(minutes / 60), 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


class TimeLeft:
    """Fed with the times at which steps and validations end, it says what is to be expected of the
    rest.

    `windows` is the number of patches that a validation computes: until the first has been timed,
    it is guessed from the steps. A validation at the last step makes the scores too; otherwise
    cases are predicted once more for them.
    """

    def __init__(
        self, *, step: int, max_steps: int, validate_every: int, batch_size: int, windows: int
    ) -> None:
        self.first, self.step, self.max_steps = step, step, max_steps
        self.validate_every, self.batch_size, self.windows = validate_every, batch_size, windows
        self.durations: deque[float] = deque(maxlen=RECENT)
        self.last: float | None = None  # when the step before ended
        self.paused = 0.0  # seconds of validations since then
        self.validation: float | None = None

    def end_step(self, step: int, now: float) -> None:
        """A step has ended; a part of one, which does not count it up, changes nothing."""
        if step == self.step:
            return
        if self.last is not None and step - self.first > SLOW_STEPS:
            self.durations.append((now - self.last - self.paused) / (step - self.step))
        self.step, self.last, self.paused = step, now, 0.0

    def end_validation(self, seconds: float) -> None:
        self.validation = seconds
        self.paused += seconds

    @property
    def step_seconds(self) -> float | None:
        """The mean of the last steps; None while there are only slow first ones."""
        return sum(self.durations) / len(self.durations) if self.durations else None

    def seconds(self) -> float | None:
        """Of the steps, the validations and the scoring that are left; None while that is not
        known."""
        step_seconds = self.step_seconds
        if step_seconds is None:
            return None
        guess = self.windows * FORWARD_SHARE * step_seconds / self.batch_size
        validation = guess if self.validation is None else self.validation
        every = min(self.validate_every, self.max_steps)
        validations = self.max_steps // every - self.step // every
        scoring = 1 if self.max_steps % every else 0
        return (self.max_steps - self.step) * step_seconds + (validations + scoring) * validation

    def text(self) -> str:
        """About 2 h 5 min left."""
        seconds = self.seconds()
        return "" if seconds is None else f"about {in_words(ceil(seconds))} left"
