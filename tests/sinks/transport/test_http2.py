"""The contract of a transport over HTTP/2: one thing heard of a request, whatever a peer does."""

import asyncio
import struct
from functools import partial

import pytest
import uvloop

pytest.importorskip("ngh2")

from pushlane.core.errors import BadInput
from pushlane.dispatcher.transport import http2
from pushlane.dispatcher.transport.answer import MOST_BODY, Answer, Fate, Lost
from pushlane.dispatcher.transport.http2 import Http2Client
from pushlane.dispatcher.transport.loop_client import Seconds
from pushlane.dispatcher.transport.request import read_url
from tests.core.support import until
from tests.sinks.transport.http2_peer import (
    ACK,
    CALM,
    CANCEL,
    CONTINUATION,
    DATA,
    HEADERS,
    PING,
    PUSH_PROMISE,
    REFUSED,
    SETTINGS,
    WINDOW_UPDATE,
    Http2Peer,
    answering,
    data,
    fields,
    frame,
    goaway,
    head,
    holding,
    ok,
    reset,
    settings,
)
from tests.sinks.transport.peers import AGES_S, posted, within_deadline

ANSWER = Answer(200, {"content-length": "2"}, b"ok")
BROKEN = Lost(Fate.BROKEN)
UNPROCESSED = Lost(Fate.UNPROCESSED)


class Clock:
    """Seconds that go on only when told to."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def client_of(peer, requests=10, streams=10, *, total_s=AGES_S, headers=None, **given):
    origin, _ = read_url(peer.url)
    seconds = Seconds(total_s, given.pop("connect_s", 0.0), given.pop("first_byte_s", 0.0))
    return Http2Client(origin, seconds, requests, headers or {}, streams=streams, **given)


def send(client, body=b"{}", path="/push", headers=None):
    return asyncio.ensure_future(client.send(path, headers or {}, body))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    return {"asyncio": asyncio.run, "uvloop": uvloop.run}[request.param]


def heard_of(run, react, count=1, *, body=b"{}", **given):
    """What is heard of requests that are sent one after the other is on its way, and the peer."""

    async def test():
        peer = Http2Peer(react, **given)
        async with peer.running():
            client = client_of(peer)
            heard = await asyncio.gather(*(send(client, body) for _ in range(count)))
            await client.close()
        return heard, peer

    return run(within_deadline(test()))


def test_a_request_and_its_answer(run):
    async def test():
        async with Http2Peer(answering(ok)).running() as peer:
            client = client_of(peer, headers={"Content-Type": "application/json"})
            assert await send(client, b'{"a":1}', "/push?x=1", {"Authorization": "key"}) == ANSWER
            assert await posted(client, body=b"") == ANSWER
            await client.close()
            assert client.connections == 0
        return peer

    peer = run(within_deadline(test()))
    [first, body, given], [_, empty, _] = peer.requests
    authority = peer.url.split("/")[2]
    assert list(first.items()) == [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", authority),
        (":path", "/push?x=1"),
        ("user-agent", "pushlane"),
        ("accept", "*/*"),
        ("content-type", "application/json"),
        ("content-length", "7"),
        ("authorization", "key"),
    ]
    assert body == b'{"a":1}'
    assert empty == b""
    never = [field[0] for field in given if not field.indexable]
    assert never == ["authorization"]


def test_authorization_of_all_requests_is_never_indexed_either(run):
    async def test():
        async with Http2Peer(answering(ok)).running() as peer:
            client = client_of(peer, headers={"Authorization": "key"})
            assert await send(client) == ANSWER
            await client.close()
        return peer

    [[_, _, given]] = run(within_deadline(test())).requests
    assert [field[0] for field in given if not field.indexable] == ["authorization"]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([ok], ANSWER),
        ([partial(head, status=204)], Answer(204, {})),
        ([lambda one: head(one, 100, ends=False) + head(one, 103, ends=False) + ok(one)], ANSWER),
        (
            [lambda one: head(one, 200, ("a", "1"), ("a", "2"), ("b", b"\xff"))],
            Answer(200, {"a": "1"}),
        ),
        (
            [
                lambda one: head(one, ends=False) + data(one, b"ok", ends=False),
                lambda one: frame(HEADERS, 5, one, fields(("grpc-status", "0"))),
            ],
            Answer(200, {}, b"ok"),
        ),
        (
            [lambda one: head(one, 503, ends=False) + data(one, b"x" * MOST_BODY)],  # in one frame
            Answer(503, {}, cut=Fate.BROKEN),
        ),
        (
            [lambda one: head(one, 503, ends=False) + reset(one, 2)],
            Answer(503, {}, cut=Fate.BROKEN),
        ),
        (
            [lambda one: head(one, 200, ends=False) + data(one, b"o", ends=False) + reset(one, 7)],
            Answer(200, {}, cut=Fate.BROKEN),
        ),
        (
            [lambda one: head(one, 200, ("content-length", "5"), ends=False) + data(one, b"ok")],
            Answer(200, {"content-length": "5"}, cut=Fate.BROKEN),
        ),
        ([partial(reset, code=REFUSED)], UNPROCESSED),
        ([partial(reset, code=2)], BROKEN),
        ([partial(reset, code=CANCEL)], BROKEN),
        ([partial(data, body=b"no head")], BROKEN),
        ([partial(head, status="000")], BROKEN),
        ([partial(head, status="99")], BROKEN),
        ([partial(head, status="101", ends=False)], BROKEN),
        ([lambda one: frame(HEADERS, 5, one, fields(("a", "no status")))], BROKEN),
        ([lambda one: head(one, 200, ("Upper", "x"))], BROKEN),
        ([lambda one: head(one, 200, ("a", "b\r\nc: d"))], BROKEN),
        ([lambda one: head(one, 200, *((f"n{i}", "x") for i in range(101)))], BROKEN),
        ([lambda one: goaway(0)], UNPROCESSED),
        ([lambda one: goaway(0, CALM)], UNPROCESSED),
        ([lambda one: b"HTTP/1.1 400 Bad Request\r\n\r\n"], BROKEN),
        ([lambda one: b"\xff" * 60], BROKEN),
        (  # our settings are acknowledged, which say that nothing is pushed
            [
                lambda one: frame(SETTINGS, ACK, 0),
                lambda one: frame(
                    PUSH_PROMISE, 4, one, struct.pack(">I", 2) + fields((":path", "/"))
                ),
                ok,
            ],
            BROKEN,
        ),
    ],
)
def test_what_is_heard_of_an_answer(run, frames, expected):
    [heard], _ = heard_of(run, answering(*frames))
    assert heard == expected


def test_a_body_up_to_the_most_is_read_and_a_longer_one_costs_its_stream_alone(run):
    def react(connection, stream):
        size = MOST_BODY + (stream == 3)
        parts = [b"x" * min(8_000, size - at) for at in range(0, size, 8_000)]
        frames = [data(stream, part, ends=False) for part in parts]
        connection.answer(stream, head(stream, ends=False), *frames, data(stream, b""))

    async def test():
        async with Http2Peer(react).running() as peer:
            client = client_of(peer)
            heard = [await send(client) for _ in range(3)]
            await client.close()
        assert len(peer.connections) == 1
        return heard

    whole = Answer(200, {}, b"x" * MOST_BODY)
    assert run(within_deadline(test())) == [whole, Answer(200, {}), whole]


def test_a_body_larger_than_the_windows_goes_as_the_peer_reads(run):
    heard, peer = heard_of(run, answering(ok), 3, body=b"x" * 300_000)
    assert heard == [ANSWER] * 3
    assert [len(body) for _, body, _ in peer.requests] == [300_000] * 3


def test_an_answer_that_comes_before_the_body_is_sent_frees_its_stream(run):
    """The peer opens no window: what is left of the body never goes."""

    async def test():
        peer = Http2Peer(holding, reads=False)
        async with peer.running():
            client = client_of(peer, 1, 1)
            sending = send(client, b"x" * 200_000)
            await peer.until(lambda: peer.connections and peer.connections[0].open)
            [connection] = peer.connections
            connection.write(head(1, 413))
            assert await sending == Answer(413, {})
            await peer.until(lambda: peer.resets)
            assert peer.resets == [(1, CANCEL)]
            sending = send(client, b"")
            await peer.until(lambda: 3 in connection.open)
            connection.answer(3, ok(3))
            assert await sending == ANSWER
            await client.close()

    run(within_deadline(test()))


async def test_nothing_is_posted_without_room_and_a_connection_has_one_stream_before_settings():
    peer = Http2Peer(holding, greets=False)
    async with peer.running():
        client = client_of(peer, 10, 10)
        assert await posted(client) is None
        sending = [send(client) for _ in range(5)]
        await peer.until(lambda: len(peer.requests) == 1)
        [connection] = peer.connections
        assert await posted(client) is None
        connection.write(settings(streams=3))
        await peer.until(lambda: len(peer.requests) == 3)
        assert await posted(client) is None
        connection.write(settings(streams=100))
        await peer.until(lambda: len(peer.requests) == 5)
        post = asyncio.ensure_future(posted(client))
        await peer.until(lambda: len(peer.requests) == 6)
        assert connection.peak == 6
        connection.write(*(ok(stream) for stream in (1, 3, 5, 7, 9, 11)))
        assert await asyncio.gather(post, *sending) == [ANSWER] * 6
        await client.close()
    assert len(peer.connections) == 1


async def test_settings_that_name_no_limit_allow_as_many_as_ours():
    peer = Http2Peer(holding, streams=None)
    async with peer.running():
        client = client_of(peer, 150, 150)
        sending = [send(client) for _ in range(150)]
        await peer.until(lambda: len(peer.requests) == 150)
        [connection] = peer.connections
        connection.write(*(ok(2 * n + 1) for n in range(150)))
        assert await asyncio.gather(*sending) == [ANSWER] * 150
        await client.close()


async def test_as_many_connections_as_the_requests_take():
    peer = Http2Peer(holding)
    async with peer.running():
        client = client_of(peer, 25, 10)
        sending = [send(client) for _ in range(25)]
        await peer.until(lambda: len(peer.requests) == 25)
        assert sorted(one.peak for one in peer.connections) == [5, 10, 10]
        for sent in sending:
            sent.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await peer.until(lambda: len(peer.resets) == 25)
        assert {code for _, code in peer.resets} == {CANCEL}
        assert client.connections == 3
        await client.close()


async def test_what_a_turn_of_the_loop_posts_goes_out_in_one_write(monkeypatch):
    async with Http2Peer(answering(ok)).running() as peer:
        client = client_of(peer)
        assert await send(client) == ANSWER
        [connection] = client._open
        writes, write = [], connection._transport.write
        wire = connection._transport

        class Counting:
            def __getattr__(self, name):
                return getattr(wire, name)

            def write(self, given):
                writes.append(given)
                write(given)

        connection._transport = Counting()
        heard = await asyncio.gather(*(posted(client) for _ in range(10)))
        assert heard == [ANSWER] * 10
        assert len(writes) == 1
        await client.close()


def test_a_goaway_ends_what_it_did_not_see_and_the_rest_goes_on(run):
    """First one that warns, then one with a last stream below ours, and the answers up to it."""

    async def test():
        peer = Http2Peer(holding)
        async with peer.running():
            client = client_of(peer)
            sending = [send(client) for _ in range(4)]
            await peer.until(lambda: len(peer.requests) == 4)
            [first] = peer.connections
            first.write(goaway(2**31 - 1))
            peer.react = answering(ok)
            while await posted(client) is not None:
                pass
            assert await send(client) == ANSWER  # on a new connection
            assert len(peer.connections) == 2
            assert not any(one.done() for one in sending)
            first.write(goaway(3))
            assert await asyncio.gather(*sending[2:]) == [UNPROCESSED] * 2
            first.write(ok(1), ok(3))
            assert await asyncio.gather(*sending[:2]) == [ANSWER] * 2
            await peer.until(lambda: first.is_over)
            assert client.connections == 1
            await client.close()

    run(within_deadline(test()))


async def test_a_goaway_whose_last_stream_grows_ends_the_connection():
    peer = Http2Peer(holding)
    async with peer.running():
        client = client_of(peer)
        sending = [send(client) for _ in range(3)]
        await peer.until(lambda: len(peer.requests) == 3)
        peer.connections[0].write(goaway(3), goaway(5))
        assert await asyncio.gather(*sending) == [BROKEN, BROKEN, UNPROCESSED]
        await client.close()


async def test_one_that_waits_is_answered_though_what_freed_its_place_broke_the_protocol():
    peer = Http2Peer(holding, streams=2)
    async with peer.running():
        client = client_of(peer, 2, 2, total_s=0.6)
        sending = [send(client) for _ in range(3)]
        await peer.until(lambda: len(peer.requests) == 2)
        peer.connections[0].write(ok(1), frame(PING, 0, 1, b"x"))
        first, second, third = await asyncio.gather(*sending)
        assert (first, second) == (ANSWER, BROKEN)
        assert isinstance(third, Lost)
        await client.close()


@pytest.mark.parametrize("tail", [goaway(2**31 - 1), goaway(3), frame(PING, 0, 1, b"x")])
async def test_nothing_is_taken_in_the_turn_in_which_a_connection_ends(tail):
    peer = Http2Peer(holding, streams=100)
    async with peer.running():
        client = client_of(peer)
        first = send(client)
        await peer.until(lambda: len(peer.requests) == 1)
        peer.connections[0].write(ok(1))
        await first
        taken, done = [], asyncio.Event()

        def answered(token, heard):
            taken.append(client.post("/push", {}, b"{}", answered, token + 1))
            done.set()

        assert client.post("/push", {}, b"{}", answered, 0)
        await peer.until(lambda: len(peer.requests) == 2)
        peer.connections[0].write(ok(3), tail)
        await done.wait()
        assert taken == [False]
        await client.close()


async def test_a_full_connection_that_may_take_no_more_is_over():
    peer = Http2Peer(answering(ok))
    async with peer.running():
        client = client_of(peer)
        assert await send(client) == ANSWER
        [connection] = peer.connections
        widened = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30))
        connection.write(widened, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**30)))
        assert await send(client) == ANSWER  # it has read that
        connection.transport.pause_reading()
        sending = [send(client, b"x" * 3_000_000) for _ in range(9)]
        [ours] = client._open
        await until(lambda: ours._is_paused)
        connection.write(goaway(3))
        assert await asyncio.gather(*sending) == [UNPROCESSED] * 9
        await until(lambda: not client._open)
        await client.close()


async def test_a_connection_that_is_cut_breaks_what_is_under_way():
    peer = Http2Peer(holding)
    async with peer.running():
        client = client_of(peer)
        sending = [send(client) for _ in range(3)]
        await peer.until(lambda: len(peer.requests) == 3)
        [connection] = peer.connections
        connection.write(head(1, 200, ends=False), ok(3))
        connection.transport.close()
        expected = [Answer(200, {}, cut=Fate.BROKEN), ANSWER, BROKEN]
        assert await asyncio.gather(*sending) == expected
        peer.react = answering(ok)
        assert await send(client) == ANSWER
        await client.close()


async def test_used_up_stream_ids_take_a_new_connection(monkeypatch):
    monkeypatch.setattr(http2, "_LAST_STREAM", 5)
    async with Http2Peer(answering(ok)).running() as peer:
        client = client_of(peer)
        assert [await send(client) for _ in range(7)] == [ANSWER] * 7
        assert len(peer.connections) == 3
        await peer.until(lambda: peer.connections[0].is_over)
        await client.close()


@pytest.mark.parametrize(
    "flood",
    [
        frame(PING, 0, 0, b"12345678"),
        frame(SETTINGS, 0, 0),
        settings(streams=100),
        reset(1, CANCEL),
        frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
        frame(DATA, 0, 3, b""),
        frame(HEADERS, 4, 3, fields((":status", "103"))),
    ],
    ids=["ping", "settings", "changes", "reset", "window", "data", "interim"],
)
def test_a_flood_ends_the_connection(run, flood):
    async def test():
        peer = Http2Peer(holding)
        async with peer.running():
            client = client_of(peer)
            sending = [send(client) for _ in range(2)]
            await peer.until(lambda: len(peer.requests) == 2)
            [connection] = peer.connections
            if flood[3] == DATA:
                connection.write(head(3, 200, ends=False))
            connection.write(ok(1), flood * 20_000)
            first, second = await asyncio.gather(*sending)
            assert first == ANSWER
            cut = Answer(200, {}, cut=Fate.BROKEN)
            assert second == (cut if flood[3] == DATA else BROKEN)
            await peer.until(lambda: connection.is_over)
            peer.react = answering(ok)
            assert await send(client) == ANSWER
            await client.close()

    run(within_deadline(test()))


def test_a_head_that_never_ends_ends_the_connection(run):
    endless = [
        lambda one: frame(HEADERS, 0, one, fields((":status", "200"))),
        lambda one: frame(CONTINUATION, 0, one) * 50,
    ]
    [heard], _ = heard_of(run, answering(*endless))
    assert heard == BROKEN


async def test_refused_streams_are_no_flood():
    peer = Http2Peer(answering(partial(reset, code=REFUSED)), streams=None)
    async with peer.running():
        client = client_of(peer, 500, 500)
        heard = await asyncio.gather(*(send(client) for _ in range(1_500)))
        assert heard == [UNPROCESSED] * 1_500
        assert len(peer.connections) == 1
        await client.close()


async def test_a_time_out_resets_its_stream_alone():
    clock = Clock()
    peer = Http2Peer(holding)
    async with peer.running():
        client = client_of(peer, total_s=30.0, first_byte_s=10.0, now=clock)
        silent, stalled = send(client), send(client)
        await peer.until(lambda: len(peer.requests) == 2)
        [connection] = peer.connections
        clock.now_s += 5.0
        third = send(client)
        await peer.until(lambda: len(peer.requests) == 3)
        connection.write(head(3, 200, ends=False))
        fourth = send(client, b"after it")
        await peer.until(lambda: len(peer.requests) == 4)
        connection.write(ok(7))
        assert await fourth == ANSWER
        clock.now_s += 5.0
        assert await silent == Lost(Fate.SILENT)
        await peer.until(lambda: peer.resets)
        assert peer.resets == [(1, CANCEL)]
        assert not third.done()
        connection.write(ok(1))  # too late, for nobody
        clock.now_s += 4.0
        connection.write(ok(5))
        assert await third == ANSWER
        clock.now_s += 6.0
        assert await stalled == Answer(200, {}, cut=Fate.STALLED)
        await peer.until(lambda: len(peer.resets) == 2)
        assert peer.resets[1] == (3, CANCEL)
        assert len(peer.connections) == 1
        await client.close()


async def test_an_idle_connection_is_pinged_and_kept_while_it_answers():
    clock = Clock()
    async with Http2Peer(answering(ok)).running() as peer:
        client = client_of(peer, now=clock)
        assert await send(client) == ANSWER
        [connection] = peer.connections
        for pings in (1, 2, 3):
            clock.now_s += 30.0
            await peer.until(lambda pings=pings: connection.pings == pings)
        assert await send(client) == ANSWER
        assert not connection.is_over
        await client.close()


async def test_a_ping_that_is_unanswered_for_10_s_ends_the_connection():
    clock = Clock()
    async with Http2Peer(answering(ok)).running() as peer:
        client = client_of(peer, now=clock)
        assert await send(client) == ANSWER
        [first] = peer.connections
        peer.acks_pings = False
        clock.now_s += 30.0
        await peer.until(lambda: first.pings)
        assert await posted(client) is None
        assert not first.is_over
        clock.now_s += 10.0
        await peer.until(lambda: first.is_over)
        assert client.connections == 0
        await client.close()


async def test_a_connection_with_a_time_out_on_which_nothing_came_takes_nothing_more():
    clock = Clock()
    peer = Http2Peer(holding)
    async with peer.running():
        client = client_of(peer, total_s=5.0, now=clock)
        first, second = send(client), send(client)
        await peer.until(lambda: len(peer.requests) == 2)
        [dead] = peer.connections
        peer.acks_pings = False
        clock.now_s += 5.0
        assert await asyncio.gather(first, second) == [Lost(Fate.SILENT)] * 2
        peer.acks_pings, peer.react = True, answering(ok)
        dead.write = lambda *frames: None
        assert await send(client) == ANSWER
        assert len(peer.connections) == 2
        await client.close()


async def test_a_connection_that_was_opened_while_a_ping_was_under_way_is_one_too_many():
    clock = Clock()
    peer = Http2Peer(answering(ok))
    async with peer.running():
        client = client_of(peer, now=clock)
        assert await send(client) == ANSWER
        [first] = peer.connections
        peer.acks_pings = False
        clock.now_s += 30.0
        await peer.until(lambda: first.pings)
        assert await send(client) == ANSWER
        assert client.connections == 2
        first.write(frame(PING, ACK, 0, b"pushlane"))
        await peer.until(lambda: any(one.is_over for one in peer.connections))
        assert client.connections == 1
        assert await posted(client) == ANSWER
        await client.close()


async def test_a_peer_that_allows_no_streams_gets_no_more_connections():
    clock = Clock()
    peer = Http2Peer(holding, greets=False)
    async with peer.running():
        client = client_of(peer, total_s=5.0, now=clock)
        first = send(client)
        await peer.until(lambda: peer.requests)
        peer.connections[0].write(settings(streams=0), ok(1))
        assert await first == ANSWER
        for _ in range(3):
            sending = send(client)
            await asyncio.sleep(0)
            clock.now_s += 5.0
            assert await sending == Lost(Fate.UNCONNECTED, in_time=False)
        assert len(peer.connections) == 1
        await client.close()


async def test_a_peer_that_never_reads_costs_time_outs_and_its_connection():
    clock = Clock()
    peer = Http2Peer(answering(ok))
    async with peer.running():
        client = client_of(peer, total_s=5.0, now=clock)
        assert await send(client) == ANSWER
        peer.react = lambda connection, stream: connection.transport.pause_reading()
        peer.acks_pings = False
        first = send(client)
        await peer.until(lambda: len(peer.requests) == 2)
        sending = [send(client, b"x" * 1_000_000) for _ in range(9)]
        await asyncio.sleep(0)
        clock.now_s += 5.0
        assert await asyncio.gather(first, *sending) == [Lost(Fate.SILENT)] * 10
        clock.now_s += 10.0
        peer.connections[0].transport.resume_reading()
        await peer.until(lambda: peer.connections[0].is_over)
        await client.close()


async def test_who_waits_too_long_for_a_connection_was_never_sent():
    clock = Clock()
    peer = Http2Peer(holding, greets=False)
    async with peer.running():
        client = client_of(peer, total_s=5.0, now=clock)
        first, second = send(client), send(client)
        await peer.until(lambda: len(peer.requests) == 1)
        clock.now_s += 5.0
        lost = Lost(Fate.UNCONNECTED, in_time=False)
        assert await asyncio.gather(first, second) == [Lost(Fate.SILENT), lost]
        await client.close()


async def test_those_that_wait_for_a_connection_that_fails_fail_with_it():
    async with Http2Peer(holding).running() as peer:
        pass
    client = client_of(peer)
    heard = await asyncio.gather(*(send(client) for _ in range(10)))
    assert heard == [Lost(Fate.UNCONNECTED, "nothing listens there")] * 10
    await client.close()
    assert await send(client) == Lost(Fate.UNCONNECTED)


async def test_what_is_under_way_at_the_end_is_broken_and_what_waits_was_never_sent():
    peer = Http2Peer(holding, streams=1)
    async with peer.running():
        client = client_of(peer)
        sending = [send(client) for _ in range(2)]
        await peer.until(lambda: len(peer.requests) == 1)
        await client.close()
        assert await asyncio.gather(*sending) == [BROKEN, Lost(Fate.UNCONNECTED)]
        assert client.connections == 0


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/push", {"a": "b\r\nc: d"}),
        ("/push", {"a": "\u20ac"}),
        ("/push", {"Connection": "close"}),
        ("/push", {"a": "1", "A": "2"}),
        ("/push", {"host": "x"}),
        ("/push", {":path": "/x"}),
        ("/a b", {}),
        ("no slash", {}),
    ],
)
async def test_a_request_that_cannot_be_sent_costs_no_connection(path, headers):
    async with Http2Peer(answering(ok)).running() as peer:
        client = client_of(peer)
        assert await send(client) == ANSWER
        with pytest.raises(BadInput):
            client.post(path, headers, b"{}", lambda *heard: None, None)
        with pytest.raises(BadInput):
            await client.send(path, headers, b"{}")
        assert await send(client) == ANSWER
        assert len(peer.connections) == 1
        await client.close()


@pytest.mark.parametrize("speaks", [["h2"], ["http/1.1"], []])
def test_over_tls_the_peer_has_to_say_that_it_speaks_http2(run, certificates, speaks):
    context = certificates.serving(certificates.authority.sign("h2", ["localhost", "127.0.0.1"]))
    if speaks:
        context.set_alpn_protocols(speaks)
    trusting = http2_context(certificates)

    async def test():
        async with Http2Peer(answering(ok)).running(context) as peer:
            client = client_of(peer, context=trusting)
            heard = await asyncio.gather(*(send(client, b"x" * 70_000) for _ in range(3)))
            await client.close()
        return heard

    expected = ANSWER
    if speaks != ["h2"]:
        expected = Lost(Fate.UNCONNECTED, "it speaks no HTTP/2 at that port")
    assert run(within_deadline(test())) == [expected] * 3


def http2_context(certificates):
    from pushlane.dispatcher.transport.dial import tls_context

    context = tls_context(Http2Client.alpn)
    context.load_verify_locations(certificates.authority.ca)
    return context
