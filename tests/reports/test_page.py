"""The HTML page."""

from __future__ import annotations

import pytest

from factorizer.reports import page


@pytest.mark.parametrize("text", ["<b>", "a & b", '"><script>'])
def test_a_page_escapes_what_it_is_given(text: str) -> None:
    html = page.make_page(
        text, [page.paragraph(text), page.table([text], [[text]]), page.image(b"png", text)]
    )
    assert text not in html.replace("<body>", "")
    assert "data:image/png;base64,cG5n" in html
