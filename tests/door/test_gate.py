"""Who asks too often is told when to ask again; nobody else is held up."""

from __future__ import annotations

import pytest

from pushlane import Settings
from pushlane.backends.backend import connect
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
        with pytest.raises(TooMany, match=r"asks more than 2 times a second; ask again in 0.5 s"):
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


async def test_the_answer_says_when_to_ask_again(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("viewer", requests_per_s=1)
        first = await ask("GET", "/v1/levels", token=token)
        second = await ask("GET", "/v1/levels", token=token)

    assert (first.status, second.status) == (200, 429)
    assert second.headers["retry-after"] == "1"
    assert second.json["type"] == "urn:pushlane:too-many"
