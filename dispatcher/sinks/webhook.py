"""Posts each push as JSON to one URL, and reads the outcome off the status.

A push that has a payload for this sink is posted as that, without a word of ours.
The Idempotency-Key is the push id, the same for every attempt. A push's trace id goes along as the
header `traceparent` when it is one (W3C Trace Context), else as `X-Trace-Id`. It never follows a
redirect, and never keeps or logs what the server answers.

========================================  ==========================  ==========================
what came back                            what it is about            what becomes of the push
========================================  ==========================  ==========================
2xx                                       the push                    delivered
no connection: refused, no route, DNS,    the sink                    goes again, no attempt
TLS, not connected in time
429, 503, with or without Retry-After     the sink                    goes again, no attempt
408, 425, 500, 502, 504, any other 5xx    the push or the sink        goes again, an attempt
a connection that broke                   the push or the sink        goes again, an attempt
no answer in time                         the push or the sink        dead, as it may have
                                                                      arrived, or an attempt
                                                                      (`--retry-timeouts`)
3xx, 400, 404, any other 4xx              the push, or a sink that    dead
                                          is being deployed
410                                       the push                    dead
401, 403                                  our credentials             goes again, no attempt; the
                                                                      sink is held
========================================  ==========================  ==========================
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from pushlane.dispatcher.sinks.http_client import (
    Timeouts,
    client_builder,
    close_client,
    drain,
    lost,
    retry_after_s,
)
from pushlane.lanes.ports import Delivery
from pushlane.lanes.push import DELIVERED, Arrival, Outcome, Scope
from pushlane.lanes.urls import require_http_url

_JSON = {"Content-Type": "application/json"}
_BUSY = frozenset({429, 503})
_RETRY = frozenset({408, 425, *_BUSY})
_NOT_TAKEN = frozenset({425, 429})
_GONE = 410
_REFUSED = frozenset({401, 403})
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C's


class _Message(msgspec.Struct, gc=False, omit_defaults=True):
    """The body that a webhook receives when its push has no payload; what is empty is left out."""

    push_id: str
    task_id: str
    seq: int
    attempt: int
    level: str
    recipient: str
    title: str
    body: str
    data: dict[str, Any] | None
    address: str = ""
    expires_at_ms: int = 0
    collapse: str = ""


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a webhook: `authorization` is sent as the header of that name.

    `only_http2` speaks HTTP/2 at once, as a server without TLS needs.
    """

    url: str
    authorization: str = ""
    headers: dict[str, str] = {}
    only_http2: bool = False

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> WebhookSink:
        """Return the sink. Raises BadInput when the URL or a header cannot be."""
        headers = dict(self.headers)
        if self.authorization:
            headers["Authorization"] = self.authorization
        return WebhookSink(
            self.url,
            slots,
            timeout_s,
            retry_timeouts,
            only_http2=self.only_http2,
            headers=headers,
        )


class WebhookSink:
    """One connection pool for all deliveries; HTTP/2 where a TLS server offers it.

    `only_http2` speaks HTTP/2 at once, as a server without TLS needs.

    Raises:
        BadInput: the URL is not an http(s) URL.
    """

    name = "webhook"
    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    def __init__(
        self,
        url: str,
        slots: int,
        timeout_s: float,
        retry_timeouts: bool = False,
        *,
        only_http2: bool = False,
        headers: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        require_http_url(url, "the webhook's URL is not one like https://example.com/push")
        self._url = url
        self._now = now
        self._timeouts = Timeouts(timeout_s, is_final=not retry_timeouts)
        self._encode = msgspec.json.Encoder().encode
        builder = client_builder(slots, self._timeouts, {**_JSON, **(headers or {})})
        self._client = (
            builder.http2_prior_knowledge() if only_http2 else builder.http2(True)
        ).build()

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self._post(delivery) for delivery in batch]

    async def close(self) -> None:
        await close_client(self._client)

    async def _post(self, delivery: Delivery) -> Outcome:
        push = delivery.push
        content = _message(delivery) if delivery.payload is None else delivery.payload
        request = (
            self._client.post(self._url)
            .header("Idempotency-Key", push.push_id)
            .body_bytes(self._encode(content))
            .streamed_read_buffer_limit(0)
        )
        if trace_id := push.trace_id:
            request = request.header(_trace_header(trace_id), trace_id)
        try:
            async with request.build_streamed() as response:
                outcome = self._outcome(response)
                await drain(response)
                return outcome
        except PyreqwestError as error:
            return lost(error, self._timeouts, "the webhook")

    def _outcome(self, response: Response) -> Outcome:
        status = response.status
        if 200 <= status < 300:
            return DELIVERED
        return outcome_of(status, response.get_header("Retry-After"), self._now())


def outcome_of(status: int, retry_after: str | None, now_s: float) -> Outcome:
    """What a status other than 2xx means for the push."""
    reason = f"HTTP {status}"
    if status >= 500 or status in _RETRY:
        after_s = retry_after_s(retry_after, now_s)
        arrival = Arrival.REFUSED if status in _NOT_TAKEN else Arrival.FAILED
        if status in _BUSY:
            return Outcome.throttled(reason, after_s, arrival=arrival)
        return Outcome.retry(reason, after_s, arrival=arrival)
    if status in _REFUSED:
        return Outcome.refused(f"{reason}: check its credentials")
    if 300 <= status < 400:
        reason = f"{reason}: redirects are not followed; give the final URL"
    return Outcome.dead(reason, scope=Scope.PUSH if status == _GONE else None)


def _message(delivery: Delivery) -> _Message:
    push = delivery.push
    return _Message(
        push.push_id,
        push.task_id,
        push.seq,
        push.attempt,
        delivery.level,
        push.recipient,
        push.title,
        push.body,
        push.data,
        "" if delivery.address == push.recipient else delivery.address,
        push.expires_at_ms,
        push.collapse,
    )


def _trace_header(trace_id: str) -> str:
    """Tracers read the first; what a push may have as its trace id a header can hold."""
    return "traceparent" if _TRACEPARENT.fullmatch(trace_id) else "X-Trace-Id"
