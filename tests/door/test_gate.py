"""Who asks too often is told when to ask again; nobody else is held up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from pushlane import Settings
from pushlane.backends.backend import connect
from pushlane.core.errors import Unreachable
from pushlane.door.gate import WRONG_PER_S, Gate
from pushlane.door.pace import Pace
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller
from pushlane.util.errors import TooMany, Unauthorized
from tests.door.asking import asking

ADMIN = Caller("root", "cli")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_second_of_rest_is_a_second_of_requests() -> None:
    clock = Clock()
    pace, taken = Pace(clock), 0
    while not pace.wait_s("ada"):
        pace.note("ada", 4.0)
        taken += 1

    assert taken == 4
    assert pace.wait_s("ada") == pytest.approx(0.25)
    assert pace.wait_s("bob") == 0
    clock.now_s += 0.25
    assert pace.wait_s("ada") == 0


def test_one_request_in_ten_seconds_is_one() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.note("ada", 0.1)

    assert pace.wait_s("ada") == pytest.approx(10.0)


async def bearer(documents_of: Settings, **more: object) -> str:
    async with connect(documents_of) as backend:
        wanted = CreateToken.made(name="ada", grants="viewer", **more)
        return f"Bearer {(await do(backend, documents_of, ADMIN, wanted)).token}"


async def test_a_token_asks_as_often_as_it_may(settings: Settings) -> None:
    slow, quick = await bearer(settings, requests_per_s=2), await bearer(settings)
    async with connect(settings) as backend:
        gate = Gate(backend.documents, clock_s=(clock := Clock()))
        await gate.caller(slow)
        await gate.caller(slow)
        with pytest.raises(
            TooMany, match=r"sends more than 2 requests a second; try again in 0.5 s"
        ):
            await gate.caller(slow)
        for _ in range(10):
            await gate.caller(quick)
        clock.now_s += 0.5
        await gate.caller(slow)


async def test_all_together_ask_as_often_as_the_server_says(settings: Settings) -> None:
    one, two = await bearer(settings), await bearer(settings)
    async with connect(settings) as backend:
        gate = Gate(backend.documents, most_per_s=2, clock_s=Clock())
        await gate.caller(one)
        await gate.caller(two)
        with pytest.raises(TooMany, match="everybody together"):
            await gate.caller(one)


async def test_wrong_tokens_are_not_looked_at_after_some(settings: Settings) -> None:
    right = await bearer(settings)
    async with connect(settings) as backend:
        gate = Gate(backend.documents, clock_s=(clock := Clock()))
        await gate.caller(right, "192.0.2.1")
        for _ in range(int(WRONG_PER_S)):
            with pytest.raises(Unauthorized):
                await gate.caller("Bearer wrong", "192.0.2.1")
        with pytest.raises(TooMany, match=r"192\.0\.2\.1 with wrong tokens"):
            await gate.caller("Bearer wrong", "192.0.2.1")

        await gate.caller(right, "192.0.2.1")  # which is remembered
        with pytest.raises(Unauthorized):
            await gate.caller("Bearer wrong", "192.0.2.2")
        clock.now_s += 1
        await gate.caller(right, "192.0.2.1")


class Held:
    """The documents of a backend, whose answers wait until they are released."""

    def __init__(self, documents: Any) -> None:
        self._documents = documents
        self.asked = 0
        self.is_away = False
        self.begun, self.released = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)

    async def get(self, kind: str, name: str) -> Any:
        self.asked += 1
        self.begun.set()
        await self.released.wait()
        if self.is_away:
            raise Unreachable("it is away")
        return await self._documents.get(kind, name)


def guess(number: int) -> str:
    """A token that nobody has, as ours are written."""
    return f"Bearer pl_{number:010x}_{'x' * 43}"


async def outcomes(gate: Gate, given: Iterable[str], held: Held) -> Counter[str]:
    """What becomes of tokens that are shown at once, by the name of the error."""
    asking = [asyncio.ensure_future(gate.caller(one, "192.0.2.1")) for one in given]
    await held.begun.wait()
    held.released.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    return Counter(type(one).__name__ for one in found)


async def test_wrong_tokens_that_come_at_once_are_counted_before_they_are_looked_at(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        held = Held(backend.documents)
        gate = Gate(held, clock_s=Clock())

        found = await outcomes(gate, map(guess, range(200)), held)

    most = int(WRONG_PER_S)
    assert found == {"Unauthorized": most, "TooMany": 200 - most}
    assert held.asked == most


async def test_right_tokens_that_come_at_once_are_all_taken(settings: Settings) -> None:
    given = [await bearer(settings) for _ in range(int(WRONG_PER_S) + 15)]
    async with connect(settings) as backend:
        held = Held(backend.documents)
        gate = Gate(held, clock_s=Clock())

        found = await outcomes(gate, given, held)
        with pytest.raises(Unauthorized):  # none of them counts as a wrong one
            await gate.caller(guess(1), "192.0.2.1")

    assert found == {"Caller": len(given)}


async def test_a_token_that_comes_many_times_at_once_is_looked_at_once(settings: Settings) -> None:
    right = await bearer(settings)
    async with connect(settings) as backend:
        held = Held(backend.documents)
        gate = Gate(held, clock_s=Clock())
        gone = asyncio.ensure_future(gate.caller(right, "192.0.2.1"))
        await held.begun.wait()
        gone.cancel()  # whose connection ends; the others are answered

        found = await outcomes(gate, [right] * 100, held)

    assert gone.cancelled()
    assert found == {"Caller": 100}
    assert held.asked == 2  # and when it was used is noted


async def test_while_nobody_can_look_no_token_counts_as_wrong(settings: Settings) -> None:
    right = await bearer(settings)
    async with connect(settings) as backend:
        held = Held(backend.documents)
        gate = Gate(held, clock_s=Clock())
        held.is_away = True
        found = await outcomes(gate, map(guess, range(100)), held)
        held.is_away = False

        assert found == {"Unreachable": 100}
        await gate.caller(right, "192.0.2.1")


async def test_one_network_of_ipv6_is_one_guesser(settings: Settings) -> None:
    async with connect(settings) as backend:
        gate = Gate(backend.documents, clock_s=Clock())
        for number in range(int(WRONG_PER_S)):
            with pytest.raises(Unauthorized):
                await gate.caller("Bearer wrong", f"2001:db8:0:1:{number:x}::7")
        with pytest.raises(TooMany, match=r"2001:db8:0:1::/64 with wrong tokens"):
            await gate.caller("Bearer wrong", "2001:db8:0:1::8")
        with pytest.raises(Unauthorized):
            await gate.caller("Bearer wrong", "2001:db8:0:2::8")
        with pytest.raises(Unauthorized):
            await gate.caller("Bearer wrong", "::ffff:192.0.2.1")


def test_paces_of_those_who_asked_last_are_kept() -> None:
    pace = Pace(Clock())
    for number in range(30_000):
        pace.note(f"ada-{number}", 1.0)

    assert len(pace) == 10_000
    assert (pace.wait_s("ada-19999"), pace.wait_s("ada-20000")) == (0.0, 1.0)


def test_what_is_given_back_may_be_asked_again() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.note("ada", 1.0)
    pace.give_back("ada", 1.0)
    pace.give_back("bob", 1.0)

    assert (pace.wait_s("ada"), pace.wait_s("bob")) == (0.0, 0.0)
    pace.note("ada", 1.0)
    assert pace.wait_s("ada") == 1.0


async def test_the_answer_says_when_to_ask_again(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("viewer", requests_per_s=1)
        first = await ask("GET", "/v1/levels", token=token)
        second = await ask("GET", "/v1/levels", token=token)

    assert (first.status, second.status) == (200, 429)
    assert second.headers["retry-after"] == "1"
    assert second.json["type"] == "urn:pushlane:too-many"
