"""Servers that misbehave as they are told to, and the ways to reach them that a client has."""

import asyncio
import os
import socket
import ssl
import struct
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
import uvloop

from pushlane.dispatcher.transport.dial import tls_context
from pushlane.dispatcher.transport.loop_client import LoopClient, Seconds
from pushlane.dispatcher.transport.request import read_url

AGES_S = 3600.0  # no test waits so long
DEADLINE_S = 15.0


class Peer:
    """Reads one request after the other, and does as `react` says with the writer of each."""

    def __init__(self, react):
        self.react = react
        self.connections = 0
        self.heads = []
        self.bodies = []

    @asynccontextmanager
    async def running(self, context=None, host="127.0.0.1"):
        server = await asyncio.start_server(self._serve, host, 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}/push"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                await self.react(writer)
        writer.transport.abort()


def saying(*parts):
    """Say this, and wait for the next request."""

    async def react(writer):
        for part in parts:
            writer.write(part)
            await writer.drain()

    return react


def cutting(*parts):
    """Say this, and cut the connection: over TLS without close_notify."""

    async def react(writer):
        await saying(*parts)(writer)
        writer.transport.abort()

    return react


def closing(*parts):
    """Say this, and close the connection as it should be."""

    async def react(writer):
        await saying(*parts)(writer)
        writer.close()

    return react


def resetting(*parts):
    """Say this, and reset the connection."""

    async def react(writer):
        await saying(*parts)(writer)
        linger = struct.pack("ii", 1, 0)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    return react


class Way(NamedTuple):
    """A loop, and what carries the bytes on it."""

    run: object
    is_tls: bool = False
    tls: str = ""

    def client(self, url, certificates, *, total_s=AGES_S, most=2, headers=None, **given):
        origin, _ = read_url(url)
        if self.is_tls:
            given["context"] = certificates.trusting
        seconds = Seconds(total_s, given.pop("connect_s", 0.0), given.pop("first_byte_s", 0.0))
        return LoopClient(origin, seconds, most, headers or {}, tls=self.tls, **given)


WAYS = {
    "asyncio": Way(asyncio.run),
    "uvloop": Way(uvloop.run),
    "asyncio-tls": Way(asyncio.run, True),
    "uvloop-tls": Way(uvloop.run, True),
    "asyncio-aiofastnet": Way(asyncio.run, True, "aiofastnet"),
    "uvloop-aiofastnet": Way(uvloop.run, True, "aiofastnet"),
}


class Certificates:
    """What servers show, and the context of a client that trusts their authority."""

    def __init__(self, authority):
        self.authority = authority
        self.good = self.serving(authority.sign("good", ["localhost", "127.0.0.1"]))
        self.trusting = tls_context()
        self.trusting.load_verify_locations(authority.ca)

    @staticmethod
    def serving(pair):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.cert, pair.key)
        return context


def way_of(name):
    if name.endswith("aiofastnet") and not os.environ.get("CI"):
        pytest.importorskip("aiofastnet")  # in CI its absence fails
    return WAYS[name]


async def posted(client, path="/push", body=b"{}", headers=None):
    """What is heard of a request that is posted; None when it was not taken."""
    heard = asyncio.get_running_loop().create_future()
    if not client.post(
        path, headers or {}, body, lambda token, what: token.set_result(what), heard
    ):
        return None
    assert not heard.done()
    return await heard


async def within_deadline(test):
    async with asyncio.timeout(DEADLINE_S):
        return await test
