"""Posts many messages in one request, and gives each its outcome.

A batch of more than 1 MiB goes in several requests. An answer that is no success is about every
message of its request; but one message alone may have spoilt it: then its halves are posted, and
theirs, until the others are through.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence

from pyreqwest.exceptions import PyreqwestError

from pushlane.core.push import Arrival, Outcome
from pushlane.dispatcher.sinks.http_client import read_answer
from pushlane.dispatcher.sinks.posting import Poster
from pushlane.dispatcher.sinks.webhook import outcome_of_answer
from pushlane.lanes.ports import Delivery

MAX_REQUEST_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
SPOILT = frozenset({400, 413, 422})
"""The statuses of a request that was not taken for what it holds (RFC 9110, 15.5)."""
UNREADABLE = Outcome.retry("the answer to a batch cannot be read", arrival=Arrival.UNKNOWN)

Read = Callable[[bytes, Sequence[Delivery]], list[Outcome]]
"""Gives each of these deliveries its outcome, by the body of an answer with a status of 2xx."""

ReadRefusal = Callable[[int, bytes], Outcome | None]
"""Reads another status and its body; None when the status says it all."""


class BatchPoster:
    """Posts `{"field": [message, …]}`."""

    def __init__(
        self,
        poster: Poster,
        field: str,
        read: Read,
        read_refusal: ReadRefusal = lambda status, body: None,
    ) -> None:
        self._poster = poster
        self._start = b'{"%b":[' % field.encode()
        self._read = read
        self._read_refusal = read_refusal

    async def deliver(self, batch: Sequence[Delivery], messages: list[bytes]) -> list[Outcome]:
        """Return what became of each delivery, whose message is JSON."""
        answers = await asyncio.gather(
            *(self._post(batch[part], messages[part]) for part in _parts(messages))
        )
        return [outcome for answer in answers for outcome in answer]

    async def close(self) -> None:
        await self._poster.close()

    async def _post(self, part: Sequence[Delivery], messages: list[bytes]) -> list[Outcome]:
        outcomes = await self._answer(part, messages)
        if outcomes is not None:
            return outcomes
        half = len(part) // 2
        first = await self._post(part[:half], messages[:half])
        return first + await self._post(part[half:], messages[half:])

    async def _answer(
        self, part: Sequence[Delivery], messages: list[bytes]
    ) -> list[Outcome] | None:
        """Return the outcomes of a request, None if one of its messages may have spoilt it."""
        body = self._start + b",".join(messages) + b"]}"
        try:
            async with self._poster.request(_key(part), body) as response:
                if 200 <= response.status < 300:
                    answer = await response.body_reader.read(MAX_ANSWER_BYTES)
                    return self._read(bytes(answer or b""), part)
                refusal = self._read_refusal(response.status, await read_answer(response))
                if refusal is None and response.status in SPOILT and len(part) > 1:
                    return None
                return [refusal or outcome_of_answer(response, time.time())] * len(part)
        except PyreqwestError as error:
            return [self._poster.lost(error)] * len(part)


def _key(part: Sequence[Delivery]) -> str:
    """Return the id of a request: the same for the same pushes, and without a dot."""
    ids = "\n".join(delivery.push.push_id for delivery in part)
    return f"batch-{hashlib.sha256(ids.encode()).hexdigest()[:32]}"


def _parts(messages: Sequence[bytes]) -> Iterator[slice]:
    """Cut a batch where a request would be too large. One message alone always goes."""
    start = size = 0
    for at, message in enumerate(messages):
        if at > start and size + len(message) > MAX_REQUEST_BYTES:
            yield slice(start, at)
            start, size = at, 0
        size += len(message) + 1
    yield slice(start, len(messages))
