"""Reads time-outs, lost answers, waits and clocks for all sinks that speak HTTP."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome
from pushlane.dispatcher.transport.answer import Answer, Answered, Fate, Heard, Lost, Transport
from pushlane.util.log_ids import ids_of_one

log = logging.getLogger("pushlane.sinks")

MAX_RETRY_AFTER_S = 3600.0
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that reading JSON from outside may raise."""
_CLOCK_MAY_BE_OFF_S = 60.0

Request: TypeAlias = tuple[str, Mapping[str, str], bytes]
"""The path, the headers and the body of a request, as a transport posts them."""


Told: TypeAlias = Callable[[Any, Outcome], None]
"""It is called with the token of a push that was posted, and its outcome."""


class OneByOne(ABC):
    """A sink that takes one push at a time."""

    name: str
    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self.send(delivery) for delivery in batch]

    @abstractmethod
    async def send(self, delivery: Delivery) -> Outcome:
        """Return what became of a push."""


class Posts(OneByOne):
    """A sink of which each push is one request to the same origin, and `outcome` reads the answer.

    It is a `PostingSink` where its transport is one that posts.
    """

    can_post = False

    @abstractmethod
    def outcome(self, heard: Heard) -> Outcome:
        """Return what becomes of a push of which this was heard."""

    @abstractmethod
    def posted(self, delivery: Delivery, answered: Answered, token: Any) -> bool:
        """Post a push, as `Transport.post` does."""

    def post(self, delivery: Delivery, answered: Told, token: Any) -> bool:
        return self.posted(delivery, self._heard, (answered, token, delivery))

    def _heard(self, token: tuple[Told, Any, Delivery], heard: Heard) -> None:
        answered, asked, delivery = token
        try:
            outcome = self.outcome(heard)
        except Exception as error:  # noqa: BLE001 - else the push would never land
            outcome = _raised(self.name, error, delivery)
        answered(asked, outcome)


def _raised(name: str, error: Exception, delivery: Delivery) -> Outcome:
    raised = f"sink raised {type(error).__name__}"
    log.error("%s: %s", name, raised, extra={"action": "sink_raised", **ids_of_one([delivery])})
    return Outcome.retry(raised, arrival=Arrival.UNKNOWN)


class SignedIn(OneByOne):
    """A sink whose pushes go with a token; after some answers it asks again at once with another.

    It is a `PostingSink` where its transport is one that posts. Asking again takes a task.
    """

    asks_again: frozenset[int]
    """The status of answers that may be about the token."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.can_post = transport.can_post
        self._asking: set[asyncio.Task[Outcome]] = set()
        self._is_closing = False

    async def close(self) -> None:
        self._is_closing = True
        await self._transport.close()
        for asking in self._asking:
            asking.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    @abstractmethod
    def request_now(self, delivery: Delivery) -> Request | None:
        """Return the request of a push, None where it can have none, or none without a wait."""

    @abstractmethod
    def outcome_of(self, request: Request, heard: Heard) -> Outcome:
        """Return what becomes of a push of whose request this was heard, without asking again."""

    @abstractmethod
    async def settled(self, request: Request, heard: Heard) -> Outcome:
        """Return what becomes of a push of whose request this was heard; ask again if need be."""

    def post(self, delivery: Delivery, answered: Told, token: Any) -> bool:
        request = self.request_now(delivery)
        if request is None:
            return False
        return self._transport.post(*request, self._heard, (answered, token, request, delivery))

    def _heard(self, asked: tuple[Told, Any, Request, Delivery], heard: Heard) -> None:
        answered, token, request, delivery = asked
        asks_again = isinstance(heard, Answer) and heard.status in self.asks_again
        if asks_again and not self._is_closing:
            asking = asyncio.get_running_loop().create_task(
                self._ask_again(request, heard, delivery)
            )
            self._asking.add(asking)
            asking.add_done_callback(partial(self._asked_again, answered, token))
            return
        try:
            outcome = self.outcome_of(request, heard)
        except Exception as error:  # noqa: BLE001 - else the push would never land
            outcome = _raised(self.name, error, delivery)
        answered(token, outcome)

    async def _ask_again(self, request: Request, heard: Heard, delivery: Delivery) -> Outcome:
        try:
            return await self.settled(request, heard)
        except Exception as error:  # noqa: BLE001 - as above
            return _raised(self.name, error, delivery)

    def _asked_again(self, answered: Told, token: Any, asking: asyncio.Task[Outcome]) -> None:
        """Tell what became of it, once; a task that was cancelled may never have begun."""
        self._asking.discard(asking)
        closed = Outcome.retry("the sink is closed", arrival=Arrival.UNKNOWN)
        answered(token, closed if asking.cancelled() else asking.result())


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds until a connection stands, an answer begins, and all of it is there.

    `is_final`: a push whose answer did not come in time is dead, as it may have arrived.
    """

    total_s: float
    connect_s: float = 0.0
    first_byte_s: float = 0.0
    is_final: bool = True

    def outcome(self, has_begun: bool = False) -> Outcome:
        """Return what becomes of a push whose answer did not begin, or not go on, in time."""
        reason = f"timed out after {self.first_byte_s or self.total_s:g} s"
        if has_begun:
            reason = "timed out in the middle of the answer"
        kind = Kind.DEAD if self.is_final else Kind.RETRY
        return Outcome(kind, reason, arrival=Arrival.UNKNOWN, is_silent=True)


def lost(heard: Lost, timeouts: Timeouts, who: str) -> Outcome:
    """Return what it means that no answer came; `who` names the sink."""
    match heard.fate:
        case Fate.UNCONNECTED:
            why = heard.why and f": {heard.why}"
            away = Outcome.throttled(f"no connection to {who}{why}")
            return away if heard.in_time else replace(away, is_silent=True)
        case Fate.UNPROCESSED:
            return Outcome.throttled(f"{who} refused the stream")
        case Fate.BROKEN:
            return Outcome.retry(f"{who}'s connection broke", arrival=Arrival.UNKNOWN)
    return timeouts.outcome(has_begun=heard.fate is Fate.STALLED)


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Seconds from a Retry-After (RFC 9110, 10.2.3), from 0 to an hour; None if unreadable."""
    if header is None:
        return None
    header = header.strip()
    if header.isascii() and header.isdigit():
        return min(float(header), MAX_RETRY_AFTER_S)
    try:
        wait_s = parsedate_to_datetime(header).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
    return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)


def clock_off_s(date: str | None, now_s: float) -> float | None:
    """Return by how many seconds our clock is ahead of a server's `Date`; None if unreadable."""
    if date is None:
        return None
    try:
        return now_s - parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def clock_note(off_s: float | None, whose: str = "the provider's") -> str:
    """Say how far our clock is off; empty when it is within a minute.

    A signature or token with a time in it is refused by a server whose clock is another.
    """
    if off_s is None or abs(off_s) <= _CLOCK_MAY_BE_OFF_S:
        return ""
    side = "ahead of" if off_s > 0 else "behind"
    return f"our clock is {abs(off_s) / 60:.0f} min {side} {whose}"
