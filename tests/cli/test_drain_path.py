"""`/drain` answers an autoscaler on another thread than the dispatcher's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from pushlane.cli.dispatch import drain_path
from pushlane.cli.health_server import HealthReply
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.model.presence import DrainFigures, SinkDrain
from pushlane.util.errors import NoLeader

FIGURES = DrainFigures(
    seconds=12.5,
    target_s=300.0,
    backlog=250,
    rate_per_s=20.0,
    by_sink={"fcm": SinkDrain(seconds=12.5, backlog=250, rate_per_s=20.0)},
    at_ms=7,
)


class FakeDispatcher:
    """Answers with figures, or with an error."""

    def __init__(self, error: PushlaneError | None = None) -> None:
        self._error = error
        self.asked: list[Sequence[str]] = []

    async def drain(self, sinks: Sequence[str]) -> DrainFigures:
        self.asked.append(sinks)
        if self._error:
            raise self._error
        return FIGURES


async def reply_of(dispatcher: Any, **query: str) -> HealthReply:
    answer = drain_path(dispatcher, asyncio.get_running_loop())
    return await asyncio.to_thread(answer, query)


async def test_it_is_one_object_of_json() -> None:
    reply = await reply_of(FakeDispatcher())

    assert (reply.status, reply.content_type) == (200, "application/json")
    assert json.loads(reply.body) == {
        "seconds": 12.5,
        "target_s": 300.0,
        "backlog": 250,
        "rate_per_s": 20.0,
        "by_sink": {"fcm": {"seconds": 12.5, "backlog": 250, "rate_per_s": 20.0}},
        "at_ms": 7,
    }


@pytest.mark.parametrize(
    ("given", "asked"), [({}, ()), ({"sinks": "a, b,"}, ("a", "b")), ({"sinks": ""}, ())]
)
async def test_it_is_asked_for_some_sinks_or_for_all(
    given: dict[str, str], asked: tuple[str, ...]
) -> None:
    dispatcher = FakeDispatcher()
    await reply_of(dispatcher, **given)

    assert dispatcher.asked == [asked]


@pytest.mark.parametrize(
    ("error", "status"),
    [(NoLeader("nobody"), 503), (Unreachable("away"), 503), (BadInput("x"), 400)],
)
async def test_what_it_cannot_tell_is_told_in_words(error: PushlaneError, status: int) -> None:
    reply = await reply_of(FakeDispatcher(error))

    assert (reply.status, reply.body) == (status, f"{error}\n".encode())


def test_after_the_loops_end_it_says_so() -> None:
    """The server ends last, and an autoscaler may still ask."""
    loop = asyncio.new_event_loop()
    loop.close()
    dispatcher: Any = FakeDispatcher()

    assert drain_path(dispatcher, loop)({}).status == 503


async def test_while_the_loop_ends_it_says_so() -> None:
    dispatcher: Any = FakeDispatcher()

    async def cancelled(_: Sequence[str]) -> DrainFigures:
        raise asyncio.CancelledError

    dispatcher.drain = cancelled

    assert (await reply_of(dispatcher)).body == b"the dispatcher ends\n"


async def test_an_unknown_parameter_is_refused() -> None:
    """Else one who means some sinks would scale by those of all."""
    dispatcher = FakeDispatcher()
    reply = await reply_of(dispatcher, sink="fcm")

    assert (reply.status, dispatcher.asked) == (400, [])
    assert reply.body == b"unknown parameter 'sink'; use sinks=NAME,\xe2\x80\xa6\n"
