"""How a wait is told: each cause has words, and a total is told in its largest parts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pushlane.model.wait_words import (
    NOT_TOLD,
    OTHER,
    WAITED,
    WaitPart,
    label,
    parts_of,
    sentence,
    told,
    told_of_many,
    took_text,
    untold_text,
)
from pushlane.model.waits import Cause

MINUTE_MS = 60_000


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_a_label_of_its_own_and_a_sentence(cause: Cause) -> None:
    assert label(cause) not in {label(other) for other in Cause if other is not cause}
    assert len(label(cause)) <= 24
    assert sentence(cause).endswith(".")


def test_a_cause_of_a_newer_version_is_told_by_its_name() -> None:
    assert told({"gravity": 3_000}) == "3 s: gravity"
    assert sentence("gravity") == ""


def test_a_wait_is_told_in_its_parts_the_largest_first() -> None:
    waits = {"slot": MINUTE_MS, "quiet": 32 * MINUTE_MS, "share": 8 * MINUTE_MS}

    said = told(waits)

    assert said == "41 min: 32 min quiet hours, 8 min others' turns, 1 min sink's capacity"


def test_what_is_left_of_many_parts_is_told_as_other_and_all_add_up() -> None:
    waits = {cause.value: 10 * place for place, cause in enumerate(Cause)}

    parts = parts_of(waits)

    assert [cause for cause, _ in parts][4:] == [OTHER]
    assert sum(ms for _, ms in parts) == sum(waits.values())
    assert all(one >= other for (_, one), (_, other) in pairwise(parts[:4]))


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        (None, NOT_TOLD),
        ({}, "0 ms"),
        ({"quiet": 0}, "0 ms"),
        ({"quiet": 1_800_000}, "30 min: quiet hours"),
    ],
)
def test_nothing_one_part_and_what_is_not_known(waits: dict[str, int] | None, said: str) -> None:
    assert told(waits) == said


def test_of_many_the_mean_is_told_in_its_parts() -> None:
    parts = [
        WaitPart(WAITED, 10, 90 * MINUTE_MS, 0, 0),
        WaitPart("share", 8, 80 * MINUTE_MS, 0, 0),
        WaitPart("slot", 10, 10 * MINUTE_MS, 0, 0),
    ]

    assert told_of_many(parts) == "9 min: 8 min others' turns, 1 min sink's capacity"
    assert told_of_many([]) == ""


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_050, "1.1 s"),
        (9_949, "9.9 s"),
        (9_990, "10 s"),
        (90_000, "1.5 min"),
        (41 * MINUTE_MS, "41 min"),
        (3 * 3_600_000, "3 h"),
        (40 * 86_400_000, "40 d"),
    ],
)
def test_a_duration_has_one_unit(ms: int, said: str) -> None:
    assert took_text(ms) == said


def test_it_is_said_of_how_many_nothing_is_known() -> None:
    assert untold_text(10, 10) == ""
    assert "of 3 of 10 delivered pushes went is not known" in untold_text(10, 7)
    assert "wait of delivered pushes went is not known" in untold_text(10, 0)
