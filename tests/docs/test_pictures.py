"""The pictures of the concepts are what their script draws, and each is shown with its words."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scripts.pictures import FOLDER, PICTURES, WIDTH

PAGES = sorted(FOLDER.parent.glob("*.md"))
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    _, draw = PICTURES[name]

    assert (FOLDER / name).read_text() == draw(), "run: python -m scripts.pictures"


def test_no_other_picture_is_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_shown_and_its_words_say_the_same(name: str) -> None:
    said, _ = PICTURES[name]
    shown = {
        " ".join(text.split())
        for page in PAGES
        for text in re.findall(rf"!\[([^\]]*)\]\(pictures/{name}\)", page.read_text())
    }

    assert shown == {said}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_needs_nothing_and_has_all_within_its_edges(name: str) -> None:
    text = (FOLDER / name).read_text()
    made = ElementTree.fromstring(text)
    height = float(made.get("height", 0))

    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    for box in made.iter(f"{_SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= WIDTH
        assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height
