"""Posts JSON to one URL that the settings name, signed where they have keys.

The webhook, batches and gorush have this in common. What an answer means is the sink's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import StreamRequest

from pushlane.core.errors import BadInput
from pushlane.core.push import Outcome
from pushlane.dispatcher.sinks.http_client import Timeouts, client_builder, close_client, lost
from pushlane.dispatcher.sinks.webhook_signature import Signer
from pushlane.lanes.urls import require_http_url, shown_url

_JSON = {"Content-Type": "application/json"}

Seconds = Annotated[float, Meta(gt=0)]


class PostOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of what posts: `authorization` is sent as the header of that name.

    `only_http2` speaks HTTP/2 at once, as a server without TLS needs. A connection has to stand
    after `connect_timeout_s`, an answer to begin `first_byte_timeout_s` after the request began,
    and to be there after the sink's `timeout_s`.
    """

    url: str
    authorization: str = ""
    headers: dict[str, str] = {}
    only_http2: bool = False
    connect_timeout_s: Seconds | None = None
    first_byte_timeout_s: Seconds | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_url(self.url)!r})"

    def all_headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        given = {"Authorization": self.authorization} if self.authorization else {}
        return {**_JSON, **self.headers, **given}

    def timeouts(self, total_s: float, retry_timeouts: bool) -> Timeouts:
        """Return the time-outs. Raises BadInput when one is not shorter than what it is part of."""
        first_byte_s, connect_s = self.first_byte_timeout_s, self.connect_timeout_s
        _require_shorter("first_byte_timeout_s", first_byte_s, "timeout_s", total_s)
        if first_byte_s is not None:
            _require_shorter("connect_timeout_s", connect_s, "first_byte_timeout_s", first_byte_s)
        _require_shorter("connect_timeout_s", connect_s, "timeout_s", total_s)
        return Timeouts(total_s, connect_s or 0.0, first_byte_s or 0.0, not retry_timeouts)


class Poster:
    """One connection pool for all requests; HTTP/2 where a TLS server offers it.

    `who` names the sink in reasons, such as "the webhook".

    Raises:
        BadInput: the URL is not an http(s) URL, or a header, a key or a time-out cannot be.
    """

    def __init__(
        self,
        options: PostOptions,
        timeouts: Timeouts,
        slots: int,
        who: str,
        *,
        secrets: str | Sequence[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        require_http_url(options.url, f"{who}'s URL is not one like https://example.com/push")
        self._url = options.url
        self._who = who
        self._now = now
        self._timeouts = timeouts
        self._signer = Signer(secrets)
        builder = client_builder(slots, timeouts, options.all_headers())
        self._client = (
            builder.http2_prior_knowledge() if options.only_http2 else builder.http2(True)
        ).build()

    def request(
        self, key: str, body: bytes, more: Mapping[str, str] | None = None
    ) -> StreamRequest:
        """Return the request to send; `key` is the same whenever the same is sent again."""
        headers = {"Idempotency-Key": key, **self._signer.headers(key, body, self._now())}
        return post_request(self._client, self._url, body, {**headers, **(more or {})})

    def lost(self, error: PyreqwestError) -> Outcome:
        """Return what it means that no answer came."""
        return lost(error, self._timeouts, self._who)

    async def close(self) -> None:
        await close_client(self._client)


def post_request(
    client: Client, url: str, body: bytes, headers: Mapping[str, str]
) -> StreamRequest:
    """Return the request that posts a body, whose answer is read only as far as it is asked for."""
    request = client.post(url).body_bytes(body).streamed_read_buffer_limit(0)
    for name, value in headers.items():
        request = request.header(name, value)
    return request.build_streamed()


def _require_shorter(name: str, value_s: float | None, whole: str, whole_s: float) -> None:
    if value_s is not None and value_s >= whole_s:
        raise BadInput(
            f"{name} is {value_s:g}, and {whole} is {whole_s:g}; give one that is shorter"
        )
