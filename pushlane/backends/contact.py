"""Keeps when each service that a process needs last answered, and says what is missing.

It is fed by what the process asks anyway, and by one small question every two seconds where that
may be long ago. So whoever looks at the process's health costs no service a request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pushlane.core.errors import PushlaneError

if TYPE_CHECKING:
    from pushlane.backends.backend import Backend

log = logging.getLogger("pushlane.health")

BROKER = "broker"
REGISTRY = "registry"
RECEIPTS = "log of receipts"
SILENT_S = 6.0
"""A service that has not answered for longer is missing: three questions went unanswered."""

_ASK_EVERY_S = 2.0
_PATIENCE_S = 5.0


class LastAnswer:
    """When a service last answered this process. It may be read on any thread."""

    def __init__(self, service: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.service = service
        self._clock_s = clock_s
        self._at_s = clock_s()
        self.has_answered = False
        self._is_asked = False

    def asked(self) -> None:
        """Note that answers are waited for from now on."""
        self._at_s = self._clock_s()
        self._is_asked = True

    def heard(self) -> None:
        """Note that the service has answered now."""
        self._at_s = self._clock_s()
        self.has_answered = self._is_asked = True

    def age_s(self) -> float:
        """Return the seconds since the last answer; before the first, since it was asked."""
        return max(0.0, self._clock_s() - self._at_s)

    @property
    def is_silent(self) -> bool:
        """Return True if an answer is overdue."""
        return self._is_asked and self.age_s() > SILENT_S

    @property
    def is_up(self) -> bool:
        """Return True if the service has answered, and not long ago."""
        return self.has_answered and not self.is_silent


class Contact:
    """The contact of a process with the services that it needs, from its start to its stop.

    `contact["broker"]` is when that one last answered. `on_started` is called once, at its start.
    """

    def __init__(self, *services: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._answers = {service: LastAnswer(service, clock_s) for service in services}
        self._clock_s = clock_s
        self._is_started = False
        self.is_stopping = False
        self.on_started: Callable[[], None] = lambda: None

    def __getitem__(self, service: str) -> LastAnswer:
        return self._answers[service]

    def started(self) -> None:
        """Note that the process has all that it begins with, and does its work from now on."""
        if not self._is_started:
            self._is_started = True
            self.on_started()

    def stopping(self) -> None:
        """Note that the process takes no more work, and ends."""
        self.is_stopping = True

    def forget(self, service: str) -> None:
        """Expect no answer of the service any more."""
        self._answers.pop(service, None)

    def renew(self, service: str) -> LastAnswer:
        """Forget what was heard of the service, which is another from now on."""
        self._answers[service] = LastAnswer(service, self._clock_s)
        return self._answers[service]

    def missing(self) -> list[str]:
        """Return what keeps the process from its work, a line for each; empty when nothing does."""
        if self.is_stopping:
            return ["stopping"]
        silent = [one for one in list(self._answers.values()) if one.is_silent]
        lines = [f"{one.service}: not reached since {one.age_s():.0f} s" for one in silent]
        return lines if self._is_started else ["starting", *lines]


@asynccontextmanager
async def in_contact(contact: Contact, backend: Backend) -> AsyncIterator[None]:
    """Ask the broker and the registry as `asking` does, for as long as the block lasts."""
    async with (
        asking(contact[BROKER], backend.broker.ping),
        asking(contact[REGISTRY], backend.registry.weights),
    ):
        yield


@asynccontextmanager
async def asking(answer: LastAnswer, ask: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Ask the service as `keep_asking` does, for as long as the block lasts."""
    task = asyncio.create_task(keep_asking(answer, ask), name=f"ask the {answer.service}")
    try:
        yield
    finally:
        task.cancel()


async def keep_asking(answer: LastAnswer, ask: Callable[[], Awaitable[object]]) -> None:
    """Ask the service every two seconds, for ever, and note when it answers."""
    answer.asked()
    is_lost = False
    while True:
        if await _answers(answer.service, ask):
            answer.heard()
        if answer.is_silent != is_lost:
            is_lost = not is_lost
            _tell(answer, is_lost)
        await asyncio.sleep(_ASK_EVERY_S)


async def _answers(service: str, ask: Callable[[], Awaitable[object]]) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await ask()
    except (PushlaneError, TimeoutError):
        return False
    except Exception as error:  # noqa: BLE001 - it must not end the asking unseen
        name = type(error).__name__
        log.error("the %s cannot be asked (%s)", service, name, extra={"action": "service_unasked"})
        return False
    return True


def _tell(answer: LastAnswer, is_lost: bool) -> None:
    if is_lost:
        text = "the %s has not answered for %.0f s"
        log.warning(text, answer.service, answer.age_s(), extra={"action": "service_silent"})
    else:
        log.info("the %s answers again", answer.service, extra={"action": "service_heard"})
