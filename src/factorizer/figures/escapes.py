"""Names of cases, regions and systems inside our files.

They may be anything. In our files they are never Markdown, LaTeX, a formula or a control character.
"""

from __future__ import annotations

import re

from factorizer.words import printable

LATEX = {character: f"\\{character}" for character in "%_&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # how a formula of a spreadsheet begins
MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")
LIST_OR_HEADING = re.compile(r"^(\d*)([.)#+-])(?=[#\s]|$)")  # at the beginning of a line


def one_line(text: str) -> str:
    """Printable text with a space for every line end and tab."""
    return " ".join(printable(text).split())


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, also in a table, a heading or a list."""
    escaped = MARKDOWN.sub(r"\\\1", one_line(text))
    escaped = LIST_OR_HEADING.sub(r"\1\\\2", escaped)
    return "".join(HTML.get(character, character) for character in escaped)


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is, also at the beginning of a table's line."""
    escaped = "".join(LATEX.get(character, character) for character in one_line(text))
    if escaped.startswith(("[", "*")):  # the end of the line before would take them for an option
        return f"{{}}{escaped}"
    return escaped


def escape_cell(text: str) -> str:
    """A cell of a table for people. An apostrophe keeps spreadsheets from computing it."""
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULA) else text


def escape_label(text: str) -> str:
    """Text in a figure: no formula, and no leading underscore, which would hide it in a legend."""
    text = one_line(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
