"""Says that this process is there, and what it does, for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from pushlane.backends.backend import Backend
from pushlane.backends.formats import format_to_write, require_format
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.push import FORMAT
from pushlane.core.retrying import Backoff
from pushlane.dispatcher.presence import TargetCheck
from pushlane.model.presence import Process

log = logging.getLogger("pushlane.presence")

EVERY_S = 5.0
TTL_S = 20.0


class PresenceAnnouncer:
    """Announces the process while it runs; `describe` gives what it is to say of itself now.

    With `replaces` it starts beside others whose sinks of the same names lead elsewhere.
    """

    def __init__(
        self, backend: Backend, describe: Callable[[], Process], *, replaces: bool = False
    ) -> None:
        self._backend = backend
        self._describe = describe
        self._backoff = Backoff(log, "the registry")
        self._due = asyncio.Event()
        self._targets = TargetCheck(backend.presence, describe, self._announce, replaces=replaces)

    @property
    def is_starting(self) -> bool:
        """True until it may deliver."""
        return self._targets.is_starting

    def stop(self) -> None:
        """Wait for no other process to end."""
        self._targets.stop()

    def say_now(self) -> None:
        """Say it again at once: there is something new to say."""
        self._due.set()

    async def enter(self) -> bool:
        """Be there, before anything is read; return False when it is stopped before it may start.

        It is said first and asked then, as whoever raises the lowest format does both the other way
        round: one of the two sees the other.

        Raises:
            UserError: lanes may hold messages of a format that this process does not read, or
                another process delivers by one of its sinks' names to somewhere else.
        """
        await self._announce()
        has_entered = False
        try:
            await require_format(self._backend.documents, self._describe().format)
            has_entered = await self._targets.enter()
            if has_entered:
                await self._tell_of_old_form()
        finally:
            if not has_entered:
                with suppress(Unreachable):  # else it would hide why it does not start
                    await self.close()
        return has_entered

    async def _tell_of_old_form(self) -> None:
        backend = self._backend
        try:
            number = await format_to_write(backend.documents, backend.registry, backend.presence)
        except PushlaneError:  # no reason not to start
            return
        if number < FORMAT:
            log.info(
                "each push is a message of its own, as older processes may be there; when all are "
                "upgraded, `pushlane formats --min %d` makes bundles of new tasks, which cost much "
                "less",
                FORMAT,
                extra={"action": "old_form"},
            )

    async def run(self) -> None:
        """Say it again before its time is over, for ever."""
        while True:
            self._due.clear()
            try:
                await self._announce()
                await self._targets.tell()
            except Unreachable as error:
                await self._backoff.wait(error)
                continue
            self._backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._due.wait()

    async def close(self) -> None:
        """Be gone at once."""
        await self._backend.presence.leave(self._describe().id)

    async def _announce(self) -> None:
        await self._backend.presence.announce(self._describe(), TTL_S)
