"""The documents are read once: short sentences, and none of the words that only we know."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.words import (
    LONGEST_SENTENCE,
    MOST_WORDS_A_SENTENCE,
    PAGES,
    STILL_TO_COME,
    count_words,
    is_covered,
    reading,
)


@pytest.mark.parametrize("page", [*filter(is_covered, PAGES)], ids=lambda page: page.stem)
def test_a_page_is_read_once(page: Path) -> None:
    read = reading(page.read_text())

    assert read.forbidden == []
    assert [one for one in read.sentences if count_words(one) > LONGEST_SENTENCE] == []
    assert read.words_a_sentence <= MOST_WORDS_A_SENTENCE, f"python -m scripts.words {page}"


def test_each_page_that_is_still_to_come_is_there() -> None:
    assert STILL_TO_COME - {page.stem for page in PAGES} == set()


def test_code_tables_headings_and_pictures_have_no_sentences() -> None:
    text = (
        "# One two three. Four\n\nYou send a `push of this kind`. It\narrives [soon](a.md).\n\n"
        "```sh\npushlane submit. A file.\n```\n\n![A picture. Of it](a.svg)\n\n"
        "- An item\n- Another item\n\n| a | table. Of two |\n|---|---|\n"
    )

    assert reading(text).sentences == [
        "You send a CODE.",
        "It arrives soon.",
        "An item",
        "Another item",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Who names no app is of `default`.", 2),
        ("The operator is told.", 1),
        ("A task that is sealed is in the journal.", 2),
        ("| a | in the ledger |", 1),
        ("For who runs it. What it has goes on.", 1),
        ("What a sink says decides.", 1),
        ("What does it cost? You set `ledger_window_s`. Who sends it?", 0),
        ("Tasks without an app belong to the app `default`.", 0),
    ],
)
def test_words_that_only_we_know_are_found(text: str, found: int) -> None:
    assert len(reading(text).forbidden) == found
