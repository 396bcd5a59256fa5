"""Keeps a process from starting beside one that delivers by the same name to another place.

A process announces itself as one that starts and looks then, and once nobody is in its way it
announces that it has started and looks again: of two that start at once, one sees the other however
their steps fall. Clocks decide only between two such, by who says that it began first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.lanes.ports import Presence
from pushlane.lanes.sink_conflicts import Conflict, conflicts_of, is_before, split_sinks
from pushlane.model.presence import Process

log = logging.getLogger("pushlane.sinks")

PATIENCE_S = 25.0
"""How long it waits for another to be gone: one that was killed is shown for 20 s."""

_LOOK_EVERY_S = 1.0
_SAY_EVERY_S = 60.0


class TargetCheck:
    """Decides whether a process may start, and says while names are delivered to several places.

    `describe` gives what the process says of itself, `announce` says it. With `replaces` it starts
    beside other targets, but never takes pushes from one that delivers without delivering itself.
    """

    def __init__(
        self,
        presence: Presence,
        describe: Callable[[], Process],
        announce: Callable[[], Awaitable[None]],
        *,
        replaces: bool,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._presence = presence
        self._describe = describe
        self._announce = announce
        self._replaces = replaces
        self._clock_s = clock_s
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
            log.warning("%s", _waiting(found[0]), extra={"action": "sink_waits"})
        until_s = self._clock_s() + PATIENCE_S
        while found:
            if self._clock_s() >= until_s:
                raise TaskConflict(_refusal(found[0]))
            await self._pause()
            if self._stopped.is_set():
                return False
            found = await self._step_again(found, until_s)
        return True

    async def _step_again(self, found: list[Conflict], until_s: float) -> list[Conflict]:
        """Step once more; while the registry does not answer, who was in the way still is."""
        try:
            await self._announce()
            return await self._step()
        except Unreachable as error:
            if self._clock_s() >= until_s:
                raise
            log.warning("still waiting: %s", error, extra={"action": "sink_waits"})
            return found

    async def _step(self) -> list[Conflict]:
        """Start if nobody is in the way; return who is."""
        me = self._describe()
        found = [
            one
            for one in await self._conflicts()
            if not one.process.is_starting or is_before(one.process, me)
        ]
        if found:
            return found
        self.is_starting = False
        try:
            await self._announce()
            found = [one for one in await self._conflicts() if is_before(one.process, me)]
        except BaseException:
            self.is_starting = True
            raise
        self.is_starting = bool(found)
        return found

    async def _conflicts(self) -> list[Conflict]:
        """Return who is in the way, without those that start and are kept from it themselves."""
        me, processes = self._describe(), await self._presence.list()
        started = [one for one in processes if not one.is_starting and one.id != me.id]
        return [
            one
            for one in conflicts_of(me, processes)
            if (one.is_waste or not self._replaces)
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
        processes, me = await self._presence.list(), self._describe()
        for one in conflicts_of(me, processes):
            if one.is_waste and not one.process.is_starting and is_before(one.process, me):
                raise TaskConflict(_refusal(one))
        now_s = self._clock_s()
        if now_s < self._said_at_s + _SAY_EVERY_S:
            return
        self._said_at_s = now_s
        for name, text in split_sinks(processes).items():
            if name in me.sink_names:
                log.warning(
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
