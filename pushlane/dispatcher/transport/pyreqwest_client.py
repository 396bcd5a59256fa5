"""The transport of the client pyreqwest, which has threads of its own: `post` is never taken.

It alone knows a failure by the texts of errors: the cause of one, not its class, tells a failed
connect from a lost answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    PyreqwestError,
    ReadTimeoutError,
    RequestTimeoutError,
)
from pyreqwest.http import HeaderMap

from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.transport.answer import MOST_BODY, Answer, Answered, Fate, Heard, Lost
from pushlane.dispatcher.transport.threads import note_threads

_MAX_CONNECT_S = 10.0
_THREADS_END_S = 0.1  # a thread of the client that still holds an object aborts a process that ends
_NOT_CONNECTED = "client error (Connect)"
_NOT_PROCESSED = "refused stream before processing"
_WHY_NOT_CONNECTED = {
    "connection refused": "nothing listens there",
    "dns error": "its host name is not known",
    "invalidcontenttype": "it speaks no TLS at that port",
    "not valid for name": "its certificate is for another host",
    "certificate expired": "its certificate has expired",
    "invalid peer certificate": "its certificate is not trusted",
}


class NeverPosts:
    """What a transport has whose requests take steps of the loop."""

    can_post = False

    def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        answered: Answered,
        token: Any,
    ) -> bool:
        return False


class PyreqwestTransport(NeverPosts):
    """One pool of connections for `slots` requests; HTTP/2 where a TLS server offers it.

    `headers` go with every request. With `only_http2` it speaks HTTP/2 at once. Raises BadInput
    when a header cannot be sent.
    """

    def __init__(
        self,
        origin: str,
        slots: int,
        timeouts: Timeouts,
        headers: Mapping[str, str],
        *,
        only_http2: bool = False,
        most_body: int = MOST_BODY,
    ) -> None:
        self._origin = origin
        self._most_body = most_body
        self._client = built(client_builder(slots, timeouts, headers), only_http2=only_http2)

    async def send(self, path: str, headers: Mapping[str, str], body: bytes) -> Heard:
        return await exchange(self._client, self._origin + path, headers, body, self._most_body)

    async def close(self) -> None:
        await close_client(self._client)


async def exchange(
    client: Client,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    most_body: int = MOST_BODY,
    ahead: int = 0,
) -> Heard:
    """Post a request, and return what is heard of it.

    Up to `ahead` bytes of the body are waited for with the head, which saves a step; what breaks
    off in them is lost. Raises BadInput for what no request may hold.
    """
    try:
        request = client.post(url).headers(headers).body_bytes(body)
        async with request.streamed_read_buffer_limit(ahead).build_streamed() as response:
            answer = Answer(response.status, _Headers(response.headers))
            try:
                told = await response.body_reader.read(most_body + 1)
            except PyreqwestError as error:
                answer.cut = lost_by(error).fate
                return answer
            if told is not None and len(told) <= most_body:
                answer.body = bytes(told)
            return answer
    except PyreqwestError as error:
        return lost_by(error)
    except ValueError:
        raise BadInput(
            "a request of the sink cannot be sent; check its headers and its URL for line breaks"
        ) from None  # the error holds the value


class _Headers(Mapping[str, str]):
    """The headers of an answer, read when they are asked for."""

    __slots__ = ("_given",)

    def __init__(self, given: HeaderMap) -> None:
        self._given = given

    def __getitem__(self, name: str) -> str:
        try:
            return self._given[name]
        except ValueError:  # its bytes are not ASCII
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in dict.fromkeys(self._given) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def lost_by(error: PyreqwestError) -> Lost:
    """Return what became of a request by its error, which is not kept: it may have the URL."""
    causes = [cause["message"] for cause in getattr(error, "details", {}).get("causes") or ()]
    if any(_NOT_CONNECTED in cause for cause in causes):
        told = " ".join(causes).lower()
        why = next((why for sign, why in _WHY_NOT_CONNECTED.items() if sign in told), "")
        return Lost(Fate.UNCONNECTED, why, in_time=not isinstance(error, RequestTimeoutError))
    if any(_NOT_PROCESSED in cause for cause in causes):
        return Lost(Fate.UNPROCESSED)
    if isinstance(error, RequestTimeoutError):
        return Lost(Fate.STALLED if isinstance(error, ReadTimeoutError) else Fate.SILENT)
    return Lost(Fate.BROKEN)


def client_builder(slots: int, timeouts: Timeouts, headers: Mapping[str, str]) -> ClientBuilder:
    """Return the builder of a client for `slots` requests at a time, with our rules.

    Raises BadInput when a header cannot be sent.
    """
    note_threads()
    first_byte_s = timeouts.first_byte_s or timeouts.total_s  # from the request on, as it counts
    connect_s = timeouts.connect_s or min(_MAX_CONNECT_S, first_byte_s / 2)
    try:
        return (
            ClientBuilder()
            .user_agent("pushlane")
            .default_headers(dict(headers))
            .timeout(timedelta(seconds=timeouts.total_s))
            .read_timeout(timedelta(seconds=first_byte_s))
            .connect_timeout(timedelta(seconds=connect_s))
            .pool_max_idle_per_host(slots)
            .follow_redirects(False)
            .referer(False)
            .gzip(False)
            .brotli(False)
            .zstd(False)
            .deflate(False)
        )
    except (PyreqwestError, ValueError):
        raise BadInput(
            "a header of the sink cannot be sent; check its name and value"
        ) from None  # the error holds the value


def built(builder: ClientBuilder, *, only_http2: bool) -> Client:
    """Return the client, which speaks HTTP/2 at once or where a TLS server offers it."""
    return (builder.http2_prior_knowledge() if only_http2 else builder.http2(True)).build()


async def close_client(client: Client) -> None:
    await client.close()
    await asyncio.sleep(_THREADS_END_S)
