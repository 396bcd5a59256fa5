"""The transport over pyreqwest: what is heard of a request, and how its errors are read."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from pyreqwest.exceptions import ConnectError, ConnectTimeoutError, ReadError

from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.transport.answer import MOST_BODY, Fate, Lost
from pushlane.dispatcher.transport.http2_pool import http2_pool
from pushlane.dispatcher.transport.pyreqwest_client import PyreqwestTransport, lost_by
from pushlane.util.url_guard import split_url
from tests.web_server import Server

URL_OF_A_ROW = "https://user-1.test/hook"
OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def transport_to(server, total_s=60.0, headers=()):
    async with server.running():
        transport = PyreqwestTransport(
            split_url(server.url)[0], 1, Timeouts(total_s), dict(headers)
        )
        try:
            yield transport
        finally:
            await transport.close()


async def heard_of(server, total_s=60.0):
    async with transport_to(server, total_s) as transport:
        return await transport.send("/push?x=1", {"X-Of": "us"}, b"body")


async def test_a_request_has_the_headers_of_all_and_its_own_and_the_rest_of_the_url():
    server = Server()
    async with transport_to(server, headers={"X-All": "same"}) as transport:
        heard = await transport.send("/push?x=1", {"X-Of": "us"}, b"body")
    assert (heard.status, heard.body, heard.cut, server.bodies) == (200, b"ok", None, [b"body"])
    assert server.heads[0].startswith("post /push?x=1 http/1.1\r\n")
    assert "\r\nx-all: same\r\n" in server.heads[0]
    assert "\r\nx-of: us\r\n" in server.heads[0]


async def test_of_headers_of_one_name_the_first_is_heard_and_none_that_is_no_text():
    head = OK + b"A: one\r\nA: two\r\nDate: \xff\r\nContent-Length: 0\r\n\r\n"
    heard = await heard_of(Server(head))
    assert dict(heard.headers) == {"a": "one", "content-length": "0"}
    assert (len(heard.headers), heard.headers.get("date")) == (2, None)


@pytest.mark.parametrize(("length", "heard"), [(MOST_BODY, MOST_BODY), (MOST_BODY + 1, 0)])
async def test_a_body_that_is_too_long_is_empty(length, heard):
    answer = OK + b"Content-Length: %d\r\n\r\n" % length + b"x" * length
    told = await heard_of(Server(answer))
    assert (told.status, len(told.body), told.cut) == (200, heard, None)


@pytest.mark.parametrize(("ends", "cut"), [(True, Fate.BROKEN), (False, Fate.STALLED)])
async def test_an_answer_whose_body_is_cut_counts_and_says_how(ends, cut):
    async def react(writer):
        writer.write(OK + b"Content-Length: 9\r\n\r\nab")
        await writer.drain()
        if not ends:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    told = await heard_of(Server(react=react), total_s=1.0)
    assert (told.status, told.body, told.cut) == (200, b"", cut)


async def test_it_never_posts_at_once():
    server = Server()
    pool = http2_pool("http://127.0.0.1:9", 1, 1, Timeouts(1.0), {})
    async with transport_to(server) as transport:
        for each in (transport, pool):
            assert each.post("/", {}, b"", lambda token, heard: None, None) is False
    await pool.close()
    assert server.connections == 0


@pytest.mark.parametrize("headers", [{"X": "secret\r\nY: 1"}, {"X Y": "secret"}])
async def test_a_header_that_cannot_be_is_refused_and_not_shown(headers):
    server = Server()
    async with transport_to(server) as transport:
        with pytest.raises(BadInput, match="check its headers") as refused:
            await transport.send("/", headers, b"")
    assert "secret" not in str(refused.value)
    assert server.connections == 0


def caused(kind, *messages):
    return kind("lost", {"causes": [{"message": message} for message in messages]})


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        ("received corrupt message of type InvalidContentType", "it speaks no TLS at that port"),
        ("invalid peer certificate: UnknownIssuer", "its certificate is not trusted"),
        (f"error at {URL_OF_A_ROW}", ""),
    ],
)
def test_why_there_is_no_connection_is_told_in_words_of_ours(cause, why):
    error = caused(ConnectError, "client error (Connect)", cause)
    assert lost_by(error) == Lost(Fate.UNCONNECTED, why)


def test_a_connection_that_took_too_long_is_known_and_a_refused_stream():
    late = caused(ConnectTimeoutError, "client error (Connect)", "operation timed out")
    assert lost_by(late) == Lost(Fate.UNCONNECTED, in_time=False)
    refused = caused(ReadError, "stream error: refused stream before processing any")
    assert lost_by(refused) == Lost(Fate.UNPROCESSED)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://h.example", ("https://h.example", "/")),
        ("HTTP://Us:p%40@H.example:80/a?b=c d#e", ("http://Us:p%40@h.example", "/a?b=c%20d")),
        ("http://[::1]:8080/?q=/", ("http://[::1]:8080", "/?q=/")),
    ],
)
def test_a_url_is_cut_where_its_path_begins(url, parts):
    assert split_url(url) == parts
