"""Words for messages: counts, and names that are safe to print."""

from __future__ import annotations

import unicodedata

KEPT = ("\n", "\t")
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # categories of characters


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: 1 case, 2 cases."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


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
