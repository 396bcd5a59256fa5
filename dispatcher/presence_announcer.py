"""Says that this process is there, and what it does, for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from pushlane.dispatcher.backoff import Backoff
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError, Unreachable
from pushlane.lanes.formats import format_to_write, require_format
from pushlane.lanes.presence import Process
from pushlane.lanes.push import FORMAT

log = logging.getLogger("pushlane.presence")

EVERY_S = 5.0
TTL_S = 20.0


class PresenceAnnouncer:
    """Announces the process while it runs; `describe` gives what it is to say of itself now."""

    def __init__(self, backend: Backend, describe: Callable[[], Process]) -> None:
        self._backend = backend
        self._describe = describe
        self._backoff = Backoff(log, "the registry")
        self._due = asyncio.Event()

    def say_now(self) -> None:
        """Say it again at once: there is something new to say."""
        self._due.set()

    async def enter(self) -> None:
        """Be there, before anything is read.

        It is said first and asked then, as whoever raises the lowest format does both the other way
        round: one of the two sees the other.

        Raises:
            UserError: lanes may hold messages of a format that this process does not read.
        """
        await self._announce()
        try:
            await require_format(self._backend.documents, self._describe().format)
            await self._tell_of_old_form()
        except BaseException:
            await self.close()
            raise

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
