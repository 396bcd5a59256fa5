"""Checks: what they found, what they could not see, and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pushlane.core.errors import Unreachable
from pushlane.util.checks import (
    Check,
    Fact,
    Remark,
    combined,
    examined,
    fact_of,
    outside,
    version_of,
)


def _check(name: str, *remarks: Remark) -> Check[None]:
    return Check(name, "host", "this", "because", lambda _: remarks)


def _unseen(fact: Fact[int]) -> Iterator[Remark]:
    yield Remark("error", f"it is {fact.get()}")


def test_a_check_that_finds_nothing_has_passed_and_one_without_facts_is_skipped() -> None:
    blind = Check("blind", "host", "that", "because", _unseen)

    found = examined((blind,), Fact[int](why_not="nobody answers"))

    assert found.skipped == {"blind": "nobody answers"}
    assert (found.findings, found.passed) == ([], [])
    assert examined((_check("fine"),), None).passed == ["fine"]
    assert [one.what for one in examined((blind,), Fact(7)).findings] == ["it is 7"]


def test_what_a_check_finds_before_it_lacks_a_fact_counts() -> None:
    def look(fact: Fact[int]) -> Iterator[Remark]:
        yield Remark("warning", "half of it is wrong")
        yield from _unseen(fact)

    found = examined((Check("half", "host", "that", "so", look),), Fact[int](why_not="refused"))

    assert [one.what for one in found.findings] == ["half of it is wrong"]
    assert found.skipped == {"half": "refused"}


def test_an_answer_of_another_form_skips_the_check_that_reads_it_and_no_other() -> None:
    def look(facts: dict[str, Any]) -> Iterator[Remark]:
        yield Remark("note", facts["a"]["b"])

    found = examined((Check("odd", "host", "that", "so", look), _check("fine")), {"a": None})

    assert found.skipped == {"odd": "the answer has an unexpected form (TypeError)"}
    assert found.passed == ["fine"]


def test_the_worst_comes_first_and_only_what_has_a_target_can_be_fixed() -> None:
    one = examined((_check("a", Remark("note", "n")), _check("b", Remark("warning", "w"))), None)
    two = examined((_check("c", Remark("error", "e", "do", ("policy", "x"))),), None)

    found = combined([one, two]).findings

    assert [(each.check, each.can_fix) for each in found] == [
        ("c", True),
        ("b", False),
        ("a", False),
    ]
    assert {each.why for each in found} == {"because"}


async def test_an_error_of_ours_is_a_reason_and_any_other_is_a_defect() -> None:
    async def fail(error: Exception) -> int:
        raise error

    assert (await fact_of(fail(Unreachable("away")), 5)).why_not == "away"
    silent = await fact_of(asyncio.Event().wait(), 0, "Redis at h")
    assert silent.why_not == "Redis at h does not answer within 0 s"
    with pytest.raises(ZeroDivisionError):
        await fact_of(fail(ZeroDivisionError()), 5)


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("4.0.8", (4, 0, 8)), ("8.0-rc1", (8, 0)), ("3.11.7+", (3, 11, 7)), ("", ()), ("x", ())],
)
def test_the_numbers_of_a_version(version: str, numbers: tuple[int, ...]) -> None:
    assert version_of(version) == numbers


@pytest.mark.parametrize(
    ("version", "severities"),
    [("2.11.4", ["error"]), ("3.0", []), ("4.0.9", []), ("4.1.0", ["warning"]), ("", ["error"])],
)
def test_a_version_out_of_range(version: str, severities: list[str]) -> None:
    assert [one.severity for one in outside("it", version, (3, 0), (4, 0))] == severities
