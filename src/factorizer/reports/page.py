"""One HTML page that holds its images, so that it opens without a server and can be sent."""

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
    """A page with these parts, which the functions below make."""
    safe_title = escape(title)
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{safe_title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>',
        f"<body><h1>{safe_title}</h1>",
        *parts,
        "</body></html>\n",
    ]
    return "\n".join(lines)


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def image(png: bytes, description: str) -> str:
    """A PNG inside the page."""
    content = b64encode(png).decode()
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{content}">'


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [table_row("th", columns)]
    lines += [table_row("td", row) for row in rows]
    return f"<table>{''.join(lines)}</table>"


def table_row(tag: str, cells: Sequence[object]) -> str:
    escaped = [f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells]
    return f"<tr>{''.join(escaped)}</tr>"
