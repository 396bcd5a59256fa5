"""Posts JSON to one URL that the settings name, signed where they have keys.

The webhook, batches and gorush have this in common. What an answer means is the sink's. Signatures
are Standard Webhooks (https://www.standardwebhooks.com): a receiver knows by them that a request is
ours and is new. Each live key signs, so that with two of them a receiver may know either.
"""

from __future__ import annotations

import binascii
import hmac
import time
from base64 import b64decode, b64encode
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
from pushlane.util.texts import require_http_url, shown_url

_PREFIX = "whsec_"
_MOST_KEYS = 2
_LEAST_BYTES, _MOST_BYTES = 24, 64


class Signer:
    """Signs with one or two keys; without a key it adds nothing.

    `secrets` is a list of keys, or a text with white space between them, as a file may hold. Raises
    BadInput for more keys, and for what is none; says what is wrong with it, never its value.
    """

    def __init__(self, secrets: str | Sequence[str]) -> None:
        given = secrets.split() if isinstance(secrets, str) else secrets
        if len(given) > _MOST_KEYS:
            raise BadInput(
                f"secrets has {len(given)} keys; give one, or two while you change from one to the "
                "other"
            )
        self._keys = [_read_key(key, f"key {n} of secrets") for n, key in enumerate(given, 1)]
        if len(set(self._keys)) < len(self._keys):
            raise BadInput("both keys of secrets are the same; leave one of them out")

    def headers(self, message_id: str, body: bytes, now_s: float) -> dict[str, str]:
        """Return the headers to send with exactly this body. The id has to be without a dot."""
        if not self._keys:
            return {}
        timestamp = str(int(now_s))
        signed = b"%b.%b.%b" % (message_id.encode(), timestamp.encode(), body)
        digests = [b64encode(hmac.digest(key, signed, "sha256")) for key in self._keys]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(f"v1,{digest.decode()}" for digest in digests),
        }


def _read_key(text: str, who: str) -> bytes:
    if text.startswith(("whsk_", "whpk_")):
        raise BadInput(f"{who} is one of a key pair; give a shared key, {_PREFIX} and base64")
    if not text.startswith(_PREFIX):
        raise BadInput(f"{who} does not begin with {_PREFIX}; give {_PREFIX} and base64")
    encoded = text.removeprefix(_PREFIX)
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(
            f"{who} is not base64 after {_PREFIX}; give the key as it was made"
        ) from None
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise BadInput(
            f"{who} has {len(key)} bytes; it has to have {_LEAST_BYTES} to {_MOST_BYTES}; "
            f'make one with: echo "{_PREFIX}$(openssl rand -base64 32)"'
        )
    return key


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

    `who` names the sink in reasons, such as "the webhook". Raises BadInput when the URL is not an
    http(s) URL, or a header, a key or a time-out cannot be.
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
