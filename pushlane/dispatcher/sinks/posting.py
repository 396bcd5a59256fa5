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

from pushlane.core.errors import BadInput
from pushlane.core.push import Outcome
from pushlane.dispatcher.sinks.http_client import Request, Timeouts, lost
from pushlane.dispatcher.transport.answer import MOST_BODY, Lost
from pushlane.dispatcher.transport.choice import OURS, Client, Tls, open_transport, why_not_loop
from pushlane.util.texts import require_http_url, shown_url

_PREFIX = "whsec_"
_MOST_KEYS = 2
_LEAST_BYTES, _MOST_BYTES = 24, 64
NO_HEADERS: Mapping[str, str] = {}


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
    and to be there after the sink's `timeout_s`. `client` names what posts where both could: our
    own client in the loop, or pyreqwest. `tls` is that of our own: Python's, or aiofastnet's.
    """

    url: str
    authorization: str = ""
    headers: dict[str, str] = {}
    only_http2: bool = False
    connect_timeout_s: Seconds | None = None
    first_byte_timeout_s: Seconds | None = None
    client: Client = "loop"
    tls: Tls = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_url(self.url)!r})"

    def all_headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        given = {"Authorization": self.authorization} if self.authorization else {}
        return {**_JSON, **self.headers, **given}

    def posted_by(self) -> str:
        """Say which client posts, and why where it is not our own."""
        return why_not_loop(self.url, self.client, only_http2=self.only_http2) or OURS

    def timeouts(self, total_s: float, retry_timeouts: bool) -> Timeouts:
        """Return the time-outs. Raises BadInput when one is not shorter than what it is part of."""
        first_byte_s, connect_s = self.first_byte_timeout_s, self.connect_timeout_s
        _require_shorter("first_byte_timeout_s", first_byte_s, "timeout_s", total_s)
        if first_byte_s is not None:
            _require_shorter("connect_timeout_s", connect_s, "first_byte_timeout_s", first_byte_s)
        _require_shorter("connect_timeout_s", connect_s, "timeout_s", total_s)
        return Timeouts(total_s, connect_s or 0.0, first_byte_s or 0.0, not retry_timeouts)


class Poster:
    """One transport for all requests, and what they have in common.

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
        most_body: int = MOST_BODY,
        now: Callable[[], float] = time.time,
    ) -> None:
        require_http_url(options.url, f"{who}'s URL is not one like https://example.com/push")
        self._who = who
        self._now = now
        self._timeouts = timeouts
        self._signer = Signer(secrets)
        self.transport, self._path = open_transport(
            options.url,
            slots,
            timeouts,
            options.all_headers(),
            client=options.client,
            tls=options.tls,
            only_http2=options.only_http2,
            most_body=most_body,
        )

    def request(self, key: str, body: bytes, more: Mapping[str, str] = NO_HEADERS) -> Request:
        """Return the request to send; `key` is the same whenever the same is sent again."""
        signed = self._signer.headers(key, body, self._now())
        return self._path, {"Idempotency-Key": key, **signed, **more}, body

    def lost(self, heard: Lost) -> Outcome:
        """Return what it means that no answer came."""
        return lost(heard, self._timeouts, self._who)

    async def close(self) -> None:
        await self.transport.close()


def _require_shorter(name: str, value_s: float | None, whole: str, whole_s: float) -> None:
    if value_s is not None and value_s >= whole_s:
        raise BadInput(
            f"{name} is {value_s:g}, and {whole} is {whole_s:g}; give one that is shorter"
        )
