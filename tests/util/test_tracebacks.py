"""Tracebacks without the texts of errors that are not ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pushlane.core.errors import BadInput
from pushlane.util.texts import Raised, raised, traceback_of

HELD = "+49 151 23456789"


def told(failing: Callable[[], object]) -> str:
    try:
        failing()
    except Exception as error:  # noqa: BLE001 - whatever a test raises
        return traceback_of(error)
    raise AssertionError("it did not fail")


def value_error() -> None:
    raise ValueError(HELD)


def caused() -> None:
    try:
        value_error()
    except ValueError as error:
        raise BadInput("row 3 has no number") from error


def on_the_way() -> None:
    try:
        value_error()
    finally:
        {}[HELD]


def hidden() -> None:
    try:
        value_error()
    except ValueError:
        raise KeyError(HELD) from None


def grouped() -> None:
    raise ExceptionGroup(HELD, [ValueError(HELD), BadInput("row 4 is too long")])


@pytest.mark.parametrize(
    ("failing", "names"),
    [
        (value_error, ["ValueError ("]),
        (caused, ["ValueError (", "BadInput: row 3 has no number"]),
        (on_the_way, ["ValueError (", "KeyError ("]),
        (hidden, ["KeyError ("]),
        (grouped, ["ValueError (", "BadInput: row 4 is too long", "ExceptionGroup ("]),
    ],
)
def test_each_error_of_a_chain_is_named_with_its_place_and_no_value(failing, names) -> None:
    text = told(failing)

    assert HELD not in text
    assert [line for line in text.splitlines() if line.startswith(tuple(names))]
    assert text.count("Traceback (most recent call last):") == len(names)
    assert f"in {failing.__name__}" in text


def test_errors_that_lead_to_each_other_end() -> None:
    one, other = ValueError(HELD), KeyError(HELD)
    one.__cause__, other.__cause__ = other, one

    assert traceback_of(one).count("Traceback") == 2


def heard(failing: Callable[[], object]) -> Raised:
    try:
        failing()
    except Exception as error:  # noqa: BLE001 - whatever a test raises
        return raised(error)
    raise AssertionError("it did not fail")


def in_library() -> None:
    json.loads("{" + HELD)


def circle() -> None:
    first, second = ValueError(HELD), KeyError(HELD)
    first.__cause__, second.__cause__ = second, first
    raise first


@pytest.mark.parametrize(
    ("failing", "kind", "innermost"),
    [
        (value_error, "ValueError", "value_error"),
        (caused, "BadInput from ValueError", "value_error"),
        (on_the_way, "KeyError", "on_the_way"),
        (hidden, "KeyError", "hidden"),
        (grouped, "ExceptionGroup from ValueError", "grouped"),
        (in_library, "JSONDecodeError from StopIteration", "in_library"),
        (circle, "ValueError", "circle"),
    ],
)
def test_an_error_is_told_by_its_kind_and_innermost_place_of_ones_own_code(
    failing: Callable[[], object], kind: str, innermost: str
) -> None:
    error = heard(failing)

    assert error.kind.startswith(kind.partition(" from ")[0])
    assert error.places[0].startswith("tests/util/test_tracebacks.py:")
    assert error.places[0].endswith(f" in {innermost}")
    assert HELD not in error.told


def test_a_deep_error_names_its_innermost_places_alone() -> None:
    def deeper(left: int) -> None:
        if not left:
            raise ValueError(HELD)
        deeper(left - 1)

    assert len(heard(lambda: deeper(200)).places) == 3


def test_a_folder_of_imports_that_is_no_text_is_read_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [Path(__file__).parent, *sys.path])

    assert "test_tracebacks.py" in str(heard(value_error))
