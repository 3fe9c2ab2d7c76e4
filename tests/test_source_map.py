"""The map of the source is up to date."""

from __future__ import annotations

from test_structure import LAYERS

from testkit.source_map import MAP, make_map


def test_the_map_is_what_the_docstrings_say() -> None:
    assert MAP.read_text() == make_map(list(LAYERS)), "run make code-map"
