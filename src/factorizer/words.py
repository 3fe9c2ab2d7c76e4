"""Words for messages: counts, suggestions, and names that are safe to print."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

KEPT = ("\n", "\t")
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # categories of characters


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: 1 case, 2 cases."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def suggest(word: str, known: Iterable[str], lead: str) -> str:
    """The end of a message about an unknown word: the nearest known word, and all of them.

    `lead` goes before the list.

    >>> suggest("brat", ["brats", "isles22"], "choose one of")
    "; did you mean 'brats'? Choose one of brats, isles22"
    """
    names = list(known)
    return did_you_mean(nearest(word, names), f"{lead} {', '.join(names) or 'none'}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word nearest to a word, in quotation marks. Empty if none is near."""
    close = get_close_matches(word, list(known), n=1)
    return repr(close[0]) if close else ""


def did_you_mean(meant: str, remedy: str) -> str:
    """The end of a message: a question if `meant` is not empty, and then what to do."""
    if not meant:
        return f"; {remedy}"
    return f"; did you mean {meant}? {remedy[0].upper()}{remedy[1:]}"


def printable(text: str) -> str:
    """Text in which characters that control a terminal are escapes.

    These are control characters and marks that change the direction of writing. Line ends and tabs
    stay.
    """
    return "".join(map(printable_character, text))


def printable_character(character: str) -> str:
    if character in KEPT or unicodedata.category(character) not in HIDDEN:
        return character
    return character.encode("unicode_escape").decode()
