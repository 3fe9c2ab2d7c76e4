"""Names of others inside our files: nothing in them is taken for Markdown, LaTeX, a formula or a
control character."""

from __future__ import annotations

import re

from factorizer.words import printable

LATEX = {c: f"\\{c}" for c in "%_&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # what a spreadsheet takes for the beginning of one


def one_line(text: str) -> str:
    """Printable, with a space for every line end and tab."""
    return " ".join(printable(text).split())


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, also in a table, a heading or a list."""
    text = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", one_line(text))
    text = re.sub(
        r"^(\d*)([.)#+-])(?=[#\s]|$)", r"\1\\\2", text
    )  # what would begin a list or a heading
    return "".join(HTML.get(c, c) for c in text)


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is, also at the beginning of a line of a table."""
    text = "".join(LATEX.get(c, c) for c in one_line(text))
    return (
        f"{{}}{text}" if text.startswith(("[", "*")) else text
    )  # the end of the line before would take them


def escape_cell(text: str) -> str:
    """A cell of a table for people: an apostrophe before what a spreadsheet would compute."""
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULA) else text


def escape_label(text: str) -> str:
    """A text in a figure: no formula, and no leading underscore, which would hide it in a
    legend."""
    text = one_line(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
