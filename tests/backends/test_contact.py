"""What is missing to a process: from when services last answered, on a clock of the test."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.backends.contact import BROKER, REGISTRY, SILENT_S, Contact, asking
from pushlane.core.errors import Unreachable


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def contact(clock: Clock) -> Contact:
    return Contact(BROKER, REGISTRY, clock_s=clock)


def test_it_starts_until_it_has_started(contact: Contact, clock: Clock) -> None:
    clock.now_s += 100
    assert contact.missing() == ["starting"]  # nobody was asked yet

    contact.started()
    assert contact.missing() == []


def test_a_service_that_is_asked_and_silent_is_missing_with_its_time(
    contact: Contact, clock: Clock
) -> None:
    contact.started()
    for service in (BROKER, REGISTRY):
        contact[service].heard()
    clock.now_s += SILENT_S
    contact[REGISTRY].heard()
    assert contact.missing() == []

    clock.now_s += 1

    assert contact.missing() == ["broker: not reached since 7 s"]
    assert not contact[BROKER].is_up
    assert contact[REGISTRY].is_up


def test_it_is_whole_again_with_the_first_answer(contact: Contact, clock: Clock) -> None:
    contact.started()
    contact[BROKER].asked()
    clock.now_s += 60
    assert contact.missing() == ["broker: not reached since 60 s"]

    contact[BROKER].heard()

    assert contact.missing() == []
    assert contact[BROKER].age_s() == 0


def test_once_it_stops_that_is_all_it_says(contact: Contact, clock: Clock) -> None:
    contact[BROKER].asked()
    clock.now_s += 60
    contact.stopping()

    assert contact.missing() == ["stopping"]


def test_a_service_is_not_up_before_its_first_answer(contact: Contact) -> None:
    contact[BROKER].asked()

    assert not contact[BROKER].is_up


def test_its_start_is_told_once(contact: Contact) -> None:
    told: list[str] = []
    contact.on_started = lambda: told.append("started")

    contact.started()
    contact.started()

    assert told == ["started"]


def test_of_a_service_that_is_another_now_nothing_is_known(contact: Contact, clock: Clock) -> None:
    contact.started()
    contact[BROKER].heard()
    clock.now_s += 60

    renewed = contact.renew(BROKER)

    assert renewed is contact[BROKER]
    assert not renewed.has_answered
    assert contact.missing() == []


async def test_an_answer_is_noted(contact: Contact) -> None:
    answered = asyncio.Event()

    async def ask() -> None:
        answered.set()

    async with asking(contact[BROKER], ask):
        await answered.wait()
        await asyncio.sleep(0)
        assert contact[BROKER].is_up


async def test_a_refusal_is_none(contact: Contact, clock: Clock) -> None:
    asked = asyncio.Event()

    async def ask() -> None:
        asked.set()
        raise Unreachable("nobody there")

    async with asking(contact[BROKER], ask):
        await asked.wait()
        await asyncio.sleep(0)
        clock.now_s += 10

        assert not contact[BROKER].has_answered
        assert contact.missing() == ["starting", "broker: not reached since 10 s"]


async def test_a_fault_of_ours_is_told_without_its_words_and_the_asking_goes_on(
    contact: Contact, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pushlane.backends.contact._ASK_EVERY_S", 0.0)
    answered = asyncio.Event()
    faults = iter([ValueError("of +4917212345")])

    async def ask() -> None:
        for fault in faults:
            raise fault
        answered.set()

    async with asking(contact[BROKER], ask):
        await answered.wait()
        await asyncio.sleep(0)
        assert contact[BROKER].is_up

    assert "the broker cannot be asked (ValueError)" in caplog.text
    assert "4917212345" not in caplog.text
