"""The pictures of the documents: the moving one of a terminal, as an SVG, and the console's."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from scripts.demo_picture import PICTURE, frames
from scripts.moving_picture import Frame, Screen, svg

MOST_BYTES = 200 * 1024
CONSOLE = PICTURE.with_name("console")
MOST_BYTES_OF_A_PAGE = 150 * 1024
_SVG = "{http://www.w3.org/2000/svg}"


def drawn(*texts: str) -> list[str]:
    screen = Screen()
    for text in texts:
        screen.feed(text)
    return screen.lines


def test_what_is_drawn_again_is_there_once() -> None:
    assert drawn("a\r\nold\r\nolder", "\r\x1b[2K\x1b[1A\x1b[2Knew\r\nnewer") == [
        "a",
        "new",
        "newer",
    ]


def test_a_control_sequence_in_two_pieces_is_one() -> None:
    assert drawn("one\r\ntwo\x1b", "[1", "A\x1b[2Kthree") == ["three", "two"]


def test_a_row_keeps_its_place_style_and_text_and_a_bar_is_a_rectangle() -> None:
    made = ElementTree.fromstring(
        svg([Frame("", ["  <a>\x1b[1;31m red \x1b[0m██"], 1.0)], "", 40, 3)
    )
    texts = [(one.text, one.get("x"), one.get("class")) for one in made.iter(f"{_SVG}text")]
    [_card, bar] = made.iter(f"{_SVG}rect")

    assert texts == [("  <a>", "0", None), (" red ", "40", "b c1")]
    assert (bar.get("x"), bar.get("width")) == ("80", "16")


def test_rows_that_come_again_are_there_once_and_each_frame_has_its_time() -> None:
    made = svg([Frame("$", ["a"], 1.0), Frame("$", ["a", "b"], 3.0)], "two letters", 40, 3)

    assert (made.count("<g id="), made.count("<use ")) == (3, 5)
    assert "0.00%{transform:translateY(0px)}25.00%{transform:translateY(-102px)}" in made
    assert "animation:on 4.0s" in made
    assert "<title>two letters</title>" in made


def test_waiting_is_shown_faster_and_says_so() -> None:
    said = [(1.0, "writing\n"), (5.0, "What the webhooks receive"), (6.0, "\n"), (9.0, "end")]

    found = list(frames(said))

    assert [(one.heading, one.seconds) for one in found[:2]] == [
        ("$ make demo  (4 times as fast)", 1.25),
        ("$ make demo", 1.0),
    ]


def test_the_picture_of_the_readme_is_small_and_needs_nothing_from_elsewhere() -> None:
    text = PICTURE.read_text()
    made = ElementTree.fromstring(text)

    assert len(text.encode()) <= MOST_BYTES
    assert {one.tag.removeprefix(_SVG) for one in made.iter()} <= {
        *("svg", "title", "style", "rect", "defs", "g", "text", "use")
    }
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    readme = Path(PICTURE.parent.parent, "README.md").read_text()
    assert f"(docs/{PICTURE.name})" in readme
    shown = " ".join(one.text or "" for one in made.iter(f"{_SVG}text"))
    for told in ("weights 6:3:1", "security-alert is submitted last", "entitled 60%"):
        assert told in shown


def test_the_pictures_of_the_console_are_small_and_each_is_shown() -> None:
    pictures = {one.name: one.stat().st_size for one in CONSOLE.iterdir()}
    shown = re.findall(r"\]\(console/([\w.]+)\)", (PICTURE.parent / "console.md").read_text())

    assert sorted(shown) == sorted(pictures)
    assert max(pictures.values()) <= MOST_BYTES_OF_A_PAGE
