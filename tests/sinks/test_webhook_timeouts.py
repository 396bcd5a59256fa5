"""Time-outs of the webhook sink: until a connection stands, an answer begins, and it is there."""

import asyncio
import socket
from contextlib import ExitStack, contextmanager, suppress

import pytest
from msgspec.structs import replace

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from tests.web_server import Server

AGES_S = 3600.0  # no test waits so long
HANG_S = 1.0  # a loaded machine, too, connects in half of it
NO_CONNECTION = replace(Outcome.throttled("no connection to the webhook"), is_silent=True)


def timed_out(after_s, kind=Kind.DEAD):
    reason = f"timed out after {after_s:g} s"
    return Outcome(kind, reason, arrival=Arrival.UNKNOWN, is_silent=True)


async def outcome_from(url, timeout_s, *, retry_timeouts=False, **given):
    options = sink_options("webhook", {"url": url, **given}, "the sink")
    sink = options.open(1, timeout_s, retry_timeouts)
    try:
        [outcome] = await sink.deliver([Delivery(Push("task", 1, "somebody"), Level.HIGH)])
        return outcome
    finally:
        await sink.close()


@contextmanager
def nobody_accepts():
    """The queue of a listener that accepts nobody is full, so the next gets no answer."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/push"


def saying(start):
    """A server that says so much of its answer, and never more."""

    async def react(writer):
        writer.write(start)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    return Server(react=react)


@pytest.mark.parametrize(
    ("timeout_s", "given"),
    [
        (HANG_S, {}),
        (AGES_S, {"connect_timeout_s": 0.1}),
        (AGES_S, {"first_byte_timeout_s": HANG_S}),
    ],
)
async def test_a_connection_that_is_not_made_in_time_is_about_the_sink_and_not_dead(
    timeout_s, given
):
    with nobody_accepts() as url:
        assert await outcome_from(url, timeout_s, **given) == NO_CONNECTION


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-"])
@pytest.mark.parametrize(
    ("timeout_s", "given"), [(HANG_S, {}), (AGES_S, {"first_byte_timeout_s": HANG_S})]
)
async def test_an_answer_that_does_not_begin_in_time_leaves_the_push_dead(start, timeout_s, given):
    async with saying(start).running() as server:
        assert await outcome_from(server.url, timeout_s, **given) == timed_out(HANG_S)


async def test_a_server_that_hangs_is_retried_when_asked():
    async with saying(b"").running() as server:
        outcome = await outcome_from(server.url, HANG_S, retry_timeouts=True)
    assert outcome == timed_out(HANG_S, Kind.RETRY)


@pytest.mark.parametrize("given", [{}, {"first_byte_timeout_s": HANG_S / 2}])
async def test_a_server_that_hangs_after_its_status_has_answered(given):
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"
    async with saying(start).running() as server:
        assert await outcome_from(server.url, HANG_S, **given) == Outcome.delivered()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"first_byte_timeout_s": 30}, "first_byte_timeout_s is 30, and timeout_s is 30; give one"),
        ({"connect_timeout_s": 31.5}, "connect_timeout_s is 31.5, and timeout_s is 30"),
        (
            {"connect_timeout_s": 5, "first_byte_timeout_s": 5},
            "connect_timeout_s is 5, and first_byte_timeout_s is 5",
        ),
        ({"connect_timeout_s": 0}, "connect_timeout_s is out of range; give a number over 0"),
        ({"first_byte_timeout_s": "2"}, "first_byte_timeout_s is a text; give a number over 0"),
    ],
)
def test_a_time_out_that_cannot_be_is_refused(given, told):
    with pytest.raises(BadInput, match=told):
        sink_options("webhook", {"url": "http://localhost/", **given}, "it").open(1, 30.0, False)
