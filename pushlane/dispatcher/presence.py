"""Says that this process is there, and what it does, for as long as it lives.

It does not start beside one that delivers by the same name to another place. So it announces itself
as one that starts and looks then, and once nobody is in its way it announces that it has started
and looks again: of two that start at once, one sees the other however their steps fall. Clocks
decide only between two such, by who says that it began first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from pushlane.backends.backend import Backend
from pushlane.backends.formats import format_to_write, require_format
from pushlane.backends.ports import Presence
from pushlane.core.errors import PushlaneError, TaskConflict, Unreachable
from pushlane.core.retrying import Backoff
from pushlane.model.presence import Conflict, Process, conflicts_of, is_before, split_sinks
from pushlane.wire import BUNDLE

sinks_log = logging.getLogger("pushlane.sinks")

PATIENCE_S = 25.0
"""How long it waits for another to be gone: one that was killed is shown for 20 s."""

_LOOK_EVERY_S = 1.0
_SAY_EVERY_S = 60.0


@dataclass(eq=False, repr=False)
class TargetCheck:
    """Decides whether a process may start, and says while names are delivered to several places.

    `describe` gives what the process says of itself, `announce` says it. With `replaces` it starts
    beside other targets, but never takes pushes from one that delivers without delivering itself.
    """

    presence: Presence
    describe: Callable[[], Process]
    announce: Callable[[], Awaitable[None]]
    _: KW_ONLY
    replaces: bool
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._stopped = asyncio.Event()
        self._said_at_s = -_SAY_EVERY_S
        self.is_starting = True

    def stop(self) -> None:
        """Wait no longer."""
        self._stopped.set()

    async def enter(self) -> bool:
        """Wait until nobody is in the way, and be started; return False after a stop.

        Raises:
            TaskConflict: another process still delivers to another target after `PATIENCE_S`.
        """
        if self._stopped.is_set():
            return False
        found = await self._step()
        if found:
            sinks_log.warning("%s", _waiting(found[0]), extra={"action": "sink_waits"})
        until_s = self.clock_s() + PATIENCE_S
        while found:
            if self.clock_s() >= until_s:
                raise TaskConflict(_refusal(found[0]))
            await self._pause()
            if self._stopped.is_set():
                return False
            found = await self._step_again(found, until_s)
        return True

    async def _step_again(self, found: list[Conflict], until_s: float) -> list[Conflict]:
        """Step once more; while the registry does not answer, who was in the way still is."""
        try:
            await self.announce()
            return await self._step()
        except Unreachable as error:
            if self.clock_s() >= until_s:
                raise
            sinks_log.warning("still waiting: %s", error, extra={"action": "sink_waits"})
            return found

    async def _step(self) -> list[Conflict]:
        """Start if nobody is in the way; return who is."""
        me = self.describe()
        found = [
            one
            for one in await self._conflicts()
            if not one.process.is_starting or is_before(one.process, me)
        ]
        if found:
            return found
        self.is_starting = False
        try:
            await self.announce()
            found = [one for one in await self._conflicts() if is_before(one.process, me)]
        except BaseException:
            self.is_starting = True
            raise
        self.is_starting = bool(found)
        return found

    async def _conflicts(self) -> list[Conflict]:
        """Return who is in the way, without those that start and are kept from it themselves."""
        me, processes = self.describe(), await self.presence.list()
        started = [one for one in processes if not one.is_starting and one.id != me.id]
        return [
            one
            for one in conflicts_of(me, processes)
            if (one.is_waste or not self.replaces)
            and not (one.process.is_starting and conflicts_of(one.process, started))
        ]

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._stopped.wait()

    async def tell(self) -> None:
        """Say once a minute which names of this process are delivered to several places.

        Raises:
            TaskConflict: it throws away what a process that was there before it delivers. It could
                start since one of the two was not in the registry then.
        """
        processes, me = await self.presence.list(), self.describe()
        for one in conflicts_of(me, processes):
            if one.is_waste and not one.process.is_starting and is_before(one.process, me):
                raise TaskConflict(_refusal(one))
        now_s = self.clock_s()
        if now_s < self._said_at_s + _SAY_EVERY_S:
            return
        self._said_at_s = now_s
        for name, text in split_sinks(processes).items():
            if name in me.sink_names:
                sinks_log.warning(
                    "%s; each takes part of its pushes: stop all but those that are meant",
                    text,
                    extra={"action": "sink_split"},
                )


def _waiting(found: Conflict) -> str:
    return (
        f"sink {found.name} goes to {found.mine} here, and process {found.process.id} (pid "
        f"{found.process.pid}) delivers it to {found.their_text}: waiting up to {PATIENCE_S:.0f} s "
        "for that one to end"
    )


def _refusal(found: Conflict) -> str:
    name, other = found.name, f"process {found.process.id} (pid {found.process.pid})"
    if found.is_waste:
        return (
            f"sink {name} would go to {found.mine} here, which delivers nothing, and {other} "
            f"delivers it to {found.their_text}: this process would take its pushes and throw them "
            "away; stop that one first, or try this in a store of its own (--data-dir, --namespace)"
        )
    return (
        f"sink {name} would go to {found.mine} here, and {other} delivers it to "
        f"{found.their_text}: each would take part of its pushes; stop that one first, give this "
        "sink a name of its own ([sinks.NAME]), or start it with --replace-sink (setting "
        "replace_sink) if it is to replace that one"
    )


log = logging.getLogger("pushlane.presence")

EVERY_S = 5.0
TTL_S = 20.0


class PresenceAnnouncer:
    """Announces the process while it runs; `describe` gives what it is to say of itself now.

    With `replaces` it starts beside others whose sinks of the same names lead elsewhere. `targets`
    decides when it may deliver.
    """

    def __init__(
        self, backend: Backend, describe: Callable[[], Process], *, replaces: bool = False
    ) -> None:
        self._backend = backend
        self._describe = describe
        self._backoff = Backoff(log, "the registry")
        self._due = asyncio.Event()
        self.targets = TargetCheck(backend.presence, describe, self._announce, replaces=replaces)

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
            has_entered = await self.targets.enter()
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
        if number < BUNDLE:
            log.info(
                "each push is a message of its own, as older processes may be there; when all are "
                "upgraded, `pushlane formats --min %d` makes bundles of new tasks, which cost much "
                "less",
                BUNDLE,
                extra={"action": "old_form"},
            )

    async def run(self) -> None:
        """Say it again before its time is over, for ever."""
        while True:
            self._due.clear()
            try:
                await self._announce()
                await self.targets.tell()
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
