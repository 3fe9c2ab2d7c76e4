"""Words for messages."""

from __future__ import annotations

from factorizer.words import count, printable, suggest


def test_counts_have_the_right_form() -> None:
    assert [count(n, "case") for n in (0, 1, 2, 1200)] == [
        "0 cases",
        "1 case",
        "2 cases",
        "1,200 cases",
    ]
    assert count(2, "patch", "patches") == "2 patches"


def test_an_unknown_word_gets_a_question_and_the_known_words() -> None:
    known = ["brats", "isles22"]
    assert suggest("brat", known, "choose one of") == (
        "; did you mean 'brats'? Choose one of brats, isles22"
    )
    assert suggest("lungs", known, "choose one of") == "; choose one of brats, isles22"
    assert suggest("brat", [], "it has") == "; it has none"


def test_characters_that_control_a_terminal_are_escaped() -> None:
    assert printable("a\x1b[31mb\u202ec\x07 é\n") == "a\\x1b[31mb\\u202ec\\x07 é\n"
