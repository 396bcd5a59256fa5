"""Connections to one host: how many, how full, and what replaces one that broke."""

import asyncio

import pytest
from h2.errors import ErrorCodes
from msgspec.structs import replace

from pushlane.core.push import Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.sinks.http_client import Timeouts, lost
from pushlane.dispatcher.transport import http2_pool as http2_module
from pushlane.dispatcher.transport.answer import Fate, Lost
from pushlane.dispatcher.transport.http2_pool import http2_pool
from tests.emulators.http2_server import Answer, GoAway, Http2Server, Reset, Silence

TIMEOUTS = Timeouts(5.0)


async def post_all(server, pool, count):
    """The status of each answer, or what it means that there was none."""

    async def post():
        heard = await pool.send("/", {}, b"x")
        if isinstance(heard, Lost):
            return lost(heard, TIMEOUTS, "the provider")
        return heard.status

    return await asyncio.gather(*(post() for _ in range(count)))


def pool_to(server, streams=100, requests=100, timeouts=TIMEOUTS):
    return http2_pool(server.url, streams, requests, timeouts, {})


def run(test, react, **options):
    async def main():
        async with Http2Server(react, **options).running() as server:
            await test(server)

    asyncio.run(main())


def test_as_many_connections_as_the_requests_take_and_no_more_streams_on_one():
    async def test(server):
        pool = pool_to(server, streams=10, requests=40)
        assert await post_all(server, pool, 400) == [200] * 400
        assert pool.size == len(server.connections) == 4
        assert server.peak_streams <= 10
        await pool.close()

    run(test, lambda request: Answer(after_s=0.005))


def test_a_new_connection_carries_one_request_until_it_is_answered():
    async def test(server):
        pool = pool_to(server, streams=100, requests=300)
        assert await post_all(server, pool, 300) == [200] * 300
        assert (server.peak_early, server.refused) == (1, 0)
        await pool.close()

    run(test, lambda request: Answer(after_s=0.005), most_streams=100)


def test_the_peers_settings_bound_the_streams():
    async def test(server):
        pool = pool_to(server, streams=100, requests=100)
        assert await post_all(server, pool, 100) == [200] * 100
        assert (server.peak_streams, server.refused) == (3, 0)
        await pool.close()

    run(test, lambda request: Answer(after_s=0.001), most_streams=3)


@pytest.mark.parametrize(
    ("reaction", "expected"),
    [
        (
            Reset(ErrorCodes.REFUSED_STREAM),
            Outcome.throttled("the provider refused the stream"),
        ),
        (
            Reset(ErrorCodes.INTERNAL_ERROR),
            Outcome.retry("the provider's connection broke", arrival=Arrival.UNKNOWN),
        ),
        (
            GoAway(ErrorCodes.ENHANCE_YOUR_CALM),
            Outcome.retry("the provider's connection broke", arrival=Arrival.UNKNOWN),
        ),
    ],
)
def test_a_stream_or_connection_that_is_ended(reaction, expected):
    async def test(server):
        pool = pool_to(server)
        assert await post_all(server, pool, 1) == [expected]
        server.react = lambda request: Answer()
        assert await post_all(server, pool, 5) == [200] * 5
        await pool.close()

    run(test, lambda request: reaction)


def test_what_nobody_answers_ends_in_time_and_frees_its_place():
    async def test(server):
        timeouts = Timeouts(0.05)
        pool = pool_to(server, streams=1, requests=1, timeouts=timeouts)
        [outcome] = await post_all(server, pool, 1)
        assert (outcome.kind, outcome.arrival) == (Kind.DEAD, Arrival.UNKNOWN)
        server.react = lambda request: Answer()
        assert await post_all(server, pool, 3) == [200] * 3
        await pool.close()

    run(test, lambda request: Silence())


def test_nobody_there_is_about_the_sink():
    async def test(server):
        server.url = "http://127.0.0.1:9"
        pool = pool_to(server)
        [outcome] = await post_all(server, pool, 1)
        assert (outcome.kind, outcome.scope) == (Kind.RETRY, Scope.SINK)
        await pool.close()

    run(test, lambda request: Answer())


async def test_those_that_wait_for_a_connection_that_fails_fail_with_it(monkeypatch):
    failure = Lost(Fate.UNCONNECTED, "nothing listens there")
    may_fail = asyncio.Event()
    went = []

    async def fails(client, url, headers, body, ahead):
        went.append(url)
        await may_fail.wait()
        return failure

    pool = http2_pool("http://127.0.0.1:9", 100, 100, TIMEOUTS, {})
    with monkeypatch.context() as patch:
        patch.setattr(http2_module, "exchange", fails)
        requests = [asyncio.create_task(pool.send("/", {}, b"x")) for _ in range(100)]
        await asyncio.sleep(0)
        may_fail.set()
        assert await asyncio.gather(*requests) == [failure] * 100
    assert went == ["http://127.0.0.1:9/"]
    assert await pool.send("/", {}, b"x") == failure
    await pool.close()


def test_those_that_wait_for_one_that_is_silent_were_never_sent():
    async def test(server):
        timeouts = Timeouts(0.05)
        pool = pool_to(server, timeouts=timeouts)
        outcomes = await post_all(server, pool, 50)
        assert outcomes[0] == TIMEOUTS.outcome()
        unsent = replace(Outcome.throttled("no connection to the provider"), is_silent=True)
        assert outcomes[1:] == [unsent] * 49
        assert len(server.requests) == 1
        await pool.close()

    run(test, lambda request: Silence())


def test_those_that_wait_when_it_is_closed_were_never_sent():
    async def test(server):
        pool = pool_to(server)
        posting = asyncio.create_task(post_all(server, pool, 3))
        while not server.requests:
            await asyncio.sleep(0)
        await pool.close()
        first, *others = await posting
        assert (first.kind, first.arrival) == (Kind.RETRY, Arrival.UNKNOWN)
        assert others == [Outcome.throttled("no connection to the provider")] * 2
        assert pool.size == len(server.connections) == 1

    run(test, lambda request: Silence())


def test_one_that_waits_and_is_cancelled_takes_no_place():
    async def test(server):
        pool = pool_to(server, streams=1, requests=1)
        first = asyncio.create_task(post_all(server, pool, 1))
        waiting = asyncio.create_task(post_all(server, pool, 1))
        while not server.requests:
            await asyncio.sleep(0)
        waiting.cancel()
        assert await first == [200]
        assert await post_all(server, pool, 2) == [200, 200]
        await pool.close()

    run(test, lambda request: Answer(after_s=0.01))
