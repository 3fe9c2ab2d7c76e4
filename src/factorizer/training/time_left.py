"""How long a training still takes, estimated from its own steps and validations."""

from __future__ import annotations

from collections import deque
from math import ceil

SLOW_STEPS = 3  # at the start, while workers and memory are set up
RECENT = 100  # steps in the mean, so that it follows when the machine becomes busy
FORWARD_SHARE = 0.3  # the time of a patch without gradients, relative to its share of a step


def in_words(seconds: float) -> str:
    """A time such as 40 s, 3 min 10 s, 25 min, 2 h 5 min or 3 days 4 h."""
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
    """The time that is left, from the times at which steps and validations end.

    `patches` is the number of patches that a validation predicts. It gives a guess until the first
    validation is timed. A validation at the last step makes the scores too. Otherwise the cases are
    predicted once more for them.
    """

    def __init__(
        self, *, step: int, max_steps: int, validate_every: int, batch_size: int, patches: int
    ) -> None:
        self.first = step
        self.step = step
        self.max_steps = max_steps
        self.validate_every = validate_every
        self.batch_size = batch_size
        self.patches = patches
        self.durations: deque[float] = deque(maxlen=RECENT)
        self.last: float | None = None  # when the previous step ended
        self.paused = 0.0  # seconds of validations since then
        self.validation: float | None = None

    def end_step(self, step: int, now: float) -> None:
        """Note that a step has ended. The end of a part of a step changes nothing."""
        if step == self.step:
            return
        if self.last is not None and step - self.first > SLOW_STEPS:
            self.durations.append((now - self.last - self.paused) / (step - self.step))
        self.step = step
        self.last = now
        self.paused = 0.0

    def end_validation(self, seconds: float) -> None:
        """Note that a validation has ended."""
        self.validation = seconds
        self.paused += seconds

    @property
    def step_seconds(self) -> float | None:
        """The mean of the last steps. None until the slow first ones are over."""
        return sum(self.durations) / len(self.durations) if self.durations else None

    def seconds(self) -> float | None:
        """The seconds of the steps, the validations and the scoring that are left. None if
        unknown."""
        step_seconds = self.step_seconds
        if step_seconds is None:
            return None
        guess = self.patches * FORWARD_SHARE * step_seconds / self.batch_size
        validation = guess if self.validation is None else self.validation
        every = min(self.validate_every, self.max_steps)
        validations = self.max_steps // every - self.step // every
        scoring = 1 if self.max_steps % every else 0
        return (self.max_steps - self.step) * step_seconds + (validations + scoring) * validation

    def text(self) -> str:
        """A text such as "about 2 h 5 min left". Empty if unknown."""
        seconds = self.seconds()
        return "" if seconds is None else f"about {in_words(ceil(seconds))} left"
