"""Compares what live processes deliver to with the settings of this shell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.dispatcher.sinks.named import target_in
from pushlane.lanes.sink_conflicts import (
    LiveTarget,
    difference,
    live_texts,
    process_names,
    targets_by_sink,
)
from pushlane.model.presence import Process, SinkTarget
from pushlane.model.targets import SinkTargets
from pushlane.settings import Settings

_WITHIN_S = 5.0


class LiveSinks(NamedTuple):
    """The live processes, and what these settings' sinks deliver to, as far as that can be told."""

    processes: Sequence[Process]
    mine: dict[str, SinkTarget]

    def targets(self, name: str) -> list[LiveTarget]:
        """Return what live processes deliver a sink's pushes to."""
        return targets_by_sink(self.processes).get(name, [])

    def text(self, name: str) -> str:
        """Return what delivers a sink's pushes now, and to where."""
        if found := self.targets(name):
            return "; ".join(live_texts(found))
        serving = [one for one in self.processes if name in one.sink_names]
        return f"not known, by {process_names(serving)}" if serving else "nobody serves it"

    def difference(self, name: str) -> str | None:
        """Say that these settings lead elsewhere than live processes do; None if they do not."""
        return difference(name, self.mine.get(name), self.targets(name))


async def load_live(backend: Backend, settings: Settings) -> LiveSinks:
    """Look at the live processes, and at what these settings' sinks deliver to.

    Nothing is written where no live process says what it delivers to.
    """
    processes = await backend.presence.list()
    mine: dict[str, SinkTarget] = {}
    if targets_by_sink(processes):
        targets = SinkTargets(backend.documents)
        await targets.load()
        for name in settings.served:
            try:
                found = targets.of(target_in(settings, name))
            except BadInput:  # whoever opens the sink says what is wrong with it
                continue
            if found is not None:
                mine[name] = found
    return LiveSinks(processes, mine)


async def live_if_any(settings: Settings) -> LiveSinks | None:
    """Return what is live, or None where there is no store yet, or none that answers in time."""
    if settings.is_store_missing:
        return None
    try:
        async with asyncio.timeout(_WITHIN_S), connect(settings) as backend:
            return await load_live(backend, settings)
    except (PushlaneError, TimeoutError):
        return None
