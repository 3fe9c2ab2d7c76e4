"""One HTML page with its pictures inside, which opens without a server and can be sent as it is."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; color: #222; }
img { max-width: 100%; border-radius: 4px; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
pre { background: #f5f5f5; padding: 0.8rem; overflow-x: auto; border-radius: 4px; }
.note { color: #666; font-size: 0.9rem; }
"""


def make_page(title: str, parts: Sequence[str]) -> str:
    """A page of parts that the functions below make."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta '
        f'charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def picture(png: bytes, description: str) -> str:
    return (
        f'<img alt="{escape(description)}" src="data:image/png;base64,{b64encode(png).decode()}">'
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"
