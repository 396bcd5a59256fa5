"""What is heard of peers that answer well, badly, too much or not at all, over each way."""

import asyncio
from typing import NamedTuple

import pytest

from pushlane.dispatcher.transport.answer import MOST_BODY, Answer, Fate, Lost
from tests.sinks.transport.peers import (
    Peer,
    closing,
    cutting,
    posted,
    resetting,
    saying,
    within_deadline,
)

BROKEN = Lost(Fate.BROKEN)
LENGTH_2 = {"content-length": "2"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\nServer: s\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
IS_CHUNKED = {"transfer-encoding": "chunked"}


def headed(lines):
    return b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 2\r\n\r\nok"


def many(count):
    return b"".join(b"A%d: b\r\n" % n for n in range(count))


class Row(NamedTuple):
    """How a peer reacts, what is heard of it, and whether the connection is used again."""

    react: object
    heard: object
    is_kept: bool = False


ROWS = {
    "a length": Row(saying(OK), Answer(200, LENGTH_2, b"ok"), True),
    "no body": Row(saying(NO_CONTENT), Answer(204, {}), True),
    "in parts": Row(saying(*(bytes([c]) for c in OK)), Answer(200, LENGTH_2, b"ok"), True),
    "no reason, and lines without CR": Row(
        saying(b"HTTP/1.1 200\nContent-Length: 2\n\nok"), Answer(200, LENGTH_2, b"ok"), True
    ),
    "chunks, their extensions and a trailer": Row(
        saying(CHUNKED + b"1;a=b\r\no\r\n1\r\nk\r\n0\r\nA: b\r\n\r\n"),
        Answer(200, IS_CHUNKED, b"ok"),
        True,
    ),
    "names in capitals, the first of two, none beyond ASCII": Row(
        saying(headed(b"RETRY-After:  7 \r\nretry-after: 8\r\nX: \xe4\r\nx: y\r\n")),
        Answer(200, {"retry-after": "7", **LENGTH_2}, b"ok"),
        True,
    ),
    "304 with a length has no body": Row(
        saying(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n"),
        Answer(304, LENGTH_2),
        True,
    ),
    "100, 103, and then the answer": Row(
        saying(b"HTTP/1.1 100 Continue\r\n\r\n" + EARLY, OK), Answer(200, LENGTH_2, b"ok"), True
    ),
    "ten interim answers": Row(saying(EARLY * 10 + OK), Answer(200, LENGTH_2, b"ok"), True),
    "eleven interim answers": Row(saying(EARLY * 11 + OK), BROKEN),
    "nothing but an interim answer": Row(closing(EARLY), BROKEN),
    "100 headers": Row(
        saying(b"HTTP/1.1 204 No\r\n" + many(100) + b"\r\n"),
        Answer(204, {f"a{n}": "b" for n in range(100)}),
        True,
    ),
    "101 headers": Row(saying(b"HTTP/1.1 204 No\r\n" + many(101) + b"\r\n"), BROKEN),
    "one header 101 times": Row(
        saying(b"HTTP/1.1 204 No\r\n" + b"A: b\r\n" * 101 + b"\r\n"), BROKEN
    ),
    "a large head": Row(
        saying(headed(b"A: " + b"a" * 60_000 + b"\r\n")),
        Answer(200, {"a": "a" * 60_000, **LENGTH_2}, b"ok"),
        True,
    ),
    "too large a head": Row(saying(headed(b"A: " + b"a" * 65_536 + b"\r\n")), BROKEN),
    "a head that never ends": Row(
        saying(b"HTTP/1.1 200 OK\r\n", b"A: " + b"a" * 1_000_000), BROKEN
    ),
    "a line that never ends": Row(saying(b"HTTP/1.1 200 " + b"a" * 1_000_000), BROKEN),
    "the longest body": Row(
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MOST_BODY, b"a" * MOST_BODY),
        Answer(200, {"content-length": str(MOST_BODY)}, b"a" * MOST_BODY),
        True,
    ),
    "too long a body": Row(
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n", b"a" * 65_537),
        Answer(200, {"content-length": "65537"}),
    ),
    "100 MB": Row(
        saying(
            b"HTTP/1.1 429 No\r\nRetry-After: 3\r\nContent-Length: 100000000\r\n\r\n",
            *[b"a" * 1_000_000] * 100,
        ),
        Answer(429, {"retry-after": "3", "content-length": "100000000"}),
    ),
    "too much around a short body": Row(
        saying(CHUNKED + b"1;" + b"a" * 1_000_000), Answer(200, IS_CHUNKED, cut=Fate.BROKEN)
    ),
    "too long a trailer": Row(
        saying(CHUNKED + b"0\r\nA: " + b"a" * 1_000_000), Answer(200, IS_CHUNKED, cut=Fate.BROKEN)
    ),
    "a body that the end of the connection ends": Row(
        closing(ENDLESS, b"all ", b"of it"), Answer(200, {"server": "s"}, b"all of it")
    ),
    "the same without close_notify": Row(
        cutting(ENDLESS, b"all of it"), Answer(200, {"server": "s"}, b"all of it")
    ),
    "the same of HTTP/1.0": Row(closing(b"HTTP/1.0 200 OK\r\n\r\nok"), Answer(200, {}, b"ok")),
    "the same in another coding": Row(
        closing(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok"),
        Answer(200, {"transfer-encoding": "gzip"}, b"ok"),
    ),
    "reset in a body that the end of the connection ends": Row(
        resetting(ENDLESS, b"not a"), Answer(200, {"server": "s"}, cut=Fate.BROKEN)
    ),
    "half a body": Row(closing(OK[:-1]), Answer(200, LENGTH_2, cut=Fate.BROKEN)),
    "half a body in chunks": Row(
        closing(CHUNKED + b"2\r\nok\r\n"), Answer(200, IS_CHUNKED, cut=Fate.BROKEN)
    ),
    "reset after the head": Row(resetting(OK[:-2]), Answer(200, LENGTH_2, cut=Fate.BROKEN)),
    "reset after 200": Row(resetting(OK), Answer(200, LENGTH_2, b"ok")),
    "a chunk without a length": Row(
        saying(CHUNKED + b"zz\r\n"), Answer(200, IS_CHUNKED, cut=Fate.BROKEN)
    ),
    "the server closes": Row(
        saying(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        Answer(200, {"connection": "close", **LENGTH_2}, b"ok"),
    ),
    "two answers": Row(saying(OK + OK), Answer(200, LENGTH_2, b"ok")),
    "an answer, and a byte": Row(saying(OK + b"H"), Answer(200, LENGTH_2, b"ok")),
    "an answer, and garbage": Row(saying(NO_CONTENT + b"ok\r\n"), Answer(204, {})),
    "an answer, and too many headers": Row(
        saying(OK + b"HTTP/1.1 200 OK\r\n" + many(200)), Answer(200, LENGTH_2, b"ok")
    ),
    "101": Row(
        saying(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n\0\0\0"),
        Answer(101, {"upgrade": "h2c"}),
    ),
    "both lengths": Row(
        saying(CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        Answer(200, {**IS_CHUNKED, "content-length": "9"}, b"ok"),
    ),
    "two lengths": Row(
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), BROKEN
    ),
    "a length below 0": Row(saying(b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n"), BROKEN),
    "status 000": Row(saying(OK.replace(b"200", b"000")), BROKEN),
    "status 99": Row(saying(OK.replace(b"200", b"99")), BROKEN),
    "status 999": Row(saying(OK.replace(b"200", b"999")), Answer(999, LENGTH_2, b"ok"), True),
    "status 1000": Row(saying(OK.replace(b"200", b"1000")), BROKEN),
    "HTTP/2.0": Row(saying(OK.replace(b"1.1", b"2.0")), BROKEN),
    "HTTP/2 in frames": Row(saying(b"\0\0\0\4\0\0\0\0\0"), BROKEN),
    "garbage": Row(saying(b"what?\r\n\r\n"), BROKEN),
    "NUL in a header": Row(saying(headed(b"A: \0\r\n")), BROKEN),
    "a space before the colon": Row(saying(headed(b"A : b\r\n")), BROKEN),
    "a header over two lines": Row(saying(headed(b"A: b\r\n c\r\n")), BROKEN),
    "nothing": Row(closing(), BROKEN),
    "nothing, and a reset": Row(resetting(), BROKEN),
    "half a head": Row(closing(b"HTTP/1.1 200 OK\r\nConte"), BROKEN),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_heard_of_an_answer(name, way, certificates):
    row = ROWS[name]
    way.run(within_deadline(_heard_as(row, way, certificates)))


async def _heard_as(row, way, certificates):
    async with Peer(row.react).running(certificates.good if way.is_tls else None) as peer:
        client = way.client(peer.url, certificates)
        assert await client.send("/push", {}, b"{}") == row.heard
        assert peer.bodies == [b"{}"]

        again = await posted(client)
        if row.is_kept:
            assert again == row.heard
            assert peer.connections == 1
        elif again is not None:  # the end of the connection had not come yet
            assert again == BROKEN
        await client.close()
        assert client.connections == 0
        assert len(peer.bodies) == 1 + row.is_kept


HEAD = OK[:-2]
SILENCE = {
    "no answer": (saying(), Lost(Fate.SILENT)),
    "an interim answer": (saying(EARLY), Lost(Fate.SILENT)),
    "half a head": (saying(HEAD[:30]), Lost(Fate.SILENT)),
    "a head": (saying(HEAD), Answer(200, LENGTH_2, cut=Fate.STALLED)),
    "half a body": (saying(HEAD + b"o"), Answer(200, LENGTH_2, cut=Fate.STALLED)),
    "a body that nothing ends": (
        saying(ENDLESS, b"ok"),
        Answer(200, {"server": "s"}, cut=Fate.STALLED),
    ),
}


@pytest.mark.parametrize("given", [{"total_s": 1.0}, {"first_byte_s": 1.0}])
def test_what_is_heard_when_no_more_comes(given, way, certificates):
    """All at once, as each waits for its time-out."""

    async def heard_of(react):
        async with Peer(react).running(certificates.good if way.is_tls else None) as peer:
            client = way.client(peer.url, certificates, connect_s=0.9, **given)
            heard = await client.send("/push", {}, b"{}")
            assert await posted(client) is None
            await client.close()
            return heard

    async def all_heard():
        return await asyncio.gather(*(heard_of(react) for react, _ in SILENCE.values()))

    found = way.run(within_deadline(all_heard()))
    assert dict(zip(SILENCE, found, strict=True)) == {name: row[1] for name, row in SILENCE.items()}
