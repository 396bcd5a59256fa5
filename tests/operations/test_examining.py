"""What doctor looks at, asked of a server: by operators of all apps, once in a minute at most."""

from __future__ import annotations

import asyncio

import pytest

from pushlane import Settings
from pushlane.backends.backend import connect
from pushlane.core.errors import Unreachable
from pushlane.diagnosis import host
from pushlane.model.access import Access, Role
from pushlane.operations.doing import do
from pushlane.operations.examining import Examine
from pushlane.operations.session import Caller
from pushlane.util.checks import Check, Remark
from pushlane.util.errors import NotAllowed

ADMIN = Caller("ada", "cli")


async def test_findings_are_told_the_worst_first_and_made_once_for_all_who_ask(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def look(facts: object) -> list[Remark]:
        made.append(facts)
        return [Remark("note", "it is slow"), Remark("error", "it is full", "make room")]

    monkeypatch.setattr(host, "CHECKS", [Check("disk", "host", "it", "it hurts", look)])
    async with connect(settings) as backend:
        first, second = await asyncio.gather(
            *(do(backend, settings, ADMIN, Examine()) for _ in range(2))
        )
        monkeypatch.setattr("pushlane.operations.examining._KEPT_S", -1.0)
        await do(backend, settings, ADMIN, Examine())

    assert first is second
    assert len(made) == 2
    found = first.findings[0]
    assert (found.check, found.severity, found.what, found.mend) == (
        "disk",
        "error",
        "it is full",
        "make room",
    )
    assert first.counts["error"] == 1
    assert "claims" in first.passed


@pytest.mark.parametrize(
    ("access", "told"),
    [
        (Access(Role.SUBMITTER), "examine needs operator"),
        (Access(Role.ADMIN, frozenset({"shop"})), "examine is about all apps"),
    ],
)
async def test_it_is_for_operators_of_all_apps(
    settings: Settings, access: Access, told: str
) -> None:
    async with connect(settings) as backend:
        with pytest.raises(NotAllowed, match=told):
            await do(backend, settings, Caller("bob", "http", access), Examine())


async def test_checks_that_are_not_through_in_time_are_an_answer_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.operations.examining._ALL_WITHIN_S", 0.0)
    async with connect(settings) as backend:
        with pytest.raises(Unreachable, match="the checks did not end within 0 s"):
            await do(backend, settings, ADMIN, Examine())
