"""An attack: a hostile input, the command that reads it, and the right answer if it is known."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from arena import BUG, GIB, MOST_BYTES, MOST_SECONDS, Result

# errors of Python that a user cannot understand: they are ours, whatever colour they are printed in
OURS = (
    r"Traceback \(most recent call last\)|zip\(\) argument|object is not|has no "
    r"attribute|NoneType|index out of range"
    r"|not subscriptable|unhashable|invalid literal for int|could not convert string|unexpected "
    r"keyword argument"
    r"|required positional argument|not supported between instances|cannot unpack|values to "
    r"unpack|must be str"
    r"|can't multiply sequence|unsupported operand|division by zero|maximum recursion "
    r"depth|KeyError|ValueError\("
)
Outcome = Literal["refused", "accepted", "unknown"]


@dataclass(frozen=True)
class Base:
    """What is right and is then damaged: scans with labels, photographs, a trained fold, and its
    predictions."""

    strokes: Path
    photographs: Path
    run: Path
    predictions: Path


@dataclass(frozen=True)
class Attack:
    """`right` is what should happen: the input is refused, accepted, or either, as long as it is
    done properly.

    `names` are texts that the output must have, such as the name of the bad file; `written` are
    files that must exist afterwards, and `untouched` files that must not.
    """

    name: str
    arguments: Sequence[str]
    right: Outcome = "unknown"
    environment: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()
    written: Sequence[Path] = ()
    absent: Sequence[Path] = ()


# a seeded generator, what to damage, and an empty folder to damage it in -> the attack
Maker = Callable[[random.Random, Base, Path], Attack]


def judge(attack: Attack, result: Result) -> str:
    """What a command did wrong with an attack; "" if nothing."""
    if result.timed_out:
        return f"it hung for {MOST_SECONDS:.0f} s"
    if result.code < 0:
        return f"it died of signal {-result.code}"
    if result.peak_bytes > MOST_BYTES:
        return f"it took {result.peak_bytes / GIB:.1f} GiB"
    if result.code == BUG:
        return "it ended with a traceback"
    ours = re.search(OURS, result.output)
    if ours:
        return f"it shows an error of our own: {ours[0]}"
    if "\x1b" in result.output or "\x07" in result.output:
        return "control characters reach the terminal"
    if attack.right == "refused" and result.code == 0:
        return "it was accepted and should be refused"
    if attack.right == "accepted" and result.code != 0:
        return f"it was refused (exit code {result.code}) and should be accepted"
    if result.code and not result.output.strip():
        return f"it ended with exit code {result.code} and without a word"
    return judge_effects(attack, result)


def judge_effects(attack: Attack, result: Result) -> str:
    for text in attack.names:
        if text not in result.output:
            return f"the output does not name {text!r}"
    for file in attack.written:
        if not file.is_file():
            return f"{file.name} was not written"
    for file in attack.absent:
        if file.exists():
            return f"{file.name} exists, and should not"
    return ""


HOSTILE_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    float("nan"),
    2**70,
    "",
    "x" * 5000,
    "[/x]",
    "\x1b[31mred",
    "../../etc",
    "\x00",
    [],
    {},
    [[[[[[[[]]]]]]]],
    {"a": {"b": [None]}},
)


def mutate(value: Any, random_: random.Random) -> Any:
    """A copy of a JSON-like value with one place replaced, removed or wrapped."""
    if isinstance(value, dict) and value and random_.random() < 0.8:
        key = random_.choice(sorted(value, key=str))
        changed = dict(value)
        if random_.random() < 0.2:
            del changed[key]
        else:
            changed[key] = mutate(value[key], random_)
        return changed
    if isinstance(value, list) and value and random_.random() < 0.8:
        place = random_.randrange(len(value))
        return [*value[:place], mutate(value[place], random_), *value[place + 1 :]]
    return random_.choice(HOSTILE_VALUES)


def damage_bytes(content: bytes, random_: random.Random) -> bytes:
    """Flip, cut, repeat or insert bytes."""
    data = bytearray(content)
    way = random_.choice(["flip", "cut", "insert", "repeat", "zero"])
    place = random_.randrange(max(1, len(data)))
    if way == "flip":
        for _ in range(random_.choice([1, 4, 64])):
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    elif way == "cut":
        del data[place:]
    elif way == "insert":
        data[place:place] = random_.randbytes(random_.choice([1, 16, 4096]))
    elif way == "repeat":
        data[place:place] = data[: random_.randrange(1, 512)]
    else:
        data[place : place + 64] = bytes(64)
    return bytes(data)
