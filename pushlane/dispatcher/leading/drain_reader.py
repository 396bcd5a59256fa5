"""Tells an autoscaler what the leader has found, in whatever process it asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pushlane.core.errors import BadInput, NoLeader
from pushlane.lanes.ports import Presence
from pushlane.lanes.suggestions import did_you_mean
from pushlane.model.presence import DrainFigures

_KEPT_S = 2.0


class DrainReader:
    """Reads what the newest leader says; what it has read holds for two seconds."""

    def __init__(self, presence: Presence, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._presence = presence
        self._clock_s = clock_s
        self._found: DrainFigures | None = None
        self._until_s = 0.0

    async def read(self, sinks: Sequence[str] = ()) -> DrainFigures:
        """Return the figures of these sinks, of all unless any is named.

        Raises:
            NoLeader: no live process leads and has looked at the tasks lately.
            BadInput: the leader knows no such sink.
            Unreachable: the registry does not answer.
        """
        if self._clock_s() >= self._until_s:
            said = [one.drain for one in await self._presence.list() if one.drain is not None]
            self._found = max(said, key=lambda drain: drain.at_ms, default=None)
            self._until_s = self._clock_s() + (_KEPT_S if said else 0.0)
        if self._found is None:
            raise NoLeader(
                "no dispatcher leads and has looked at the tasks yet; another takes over within "
                "10 s of the last one's end (`pushlane processes` lists those that dispatch)"
            )
        return _of_sinks(self._found, sinks) if sinks else self._found


def _of_sinks(figures: DrainFigures, sinks: Sequence[str]) -> DrainFigures:
    for name in sinks:
        if name not in figures.by_sink:
            hint = did_you_mean(name, figures.by_sink)
            known = ", ".join(figures.by_sink)
            raise BadInput(f"no dispatcher serves a sink {name[:60]!r}{hint}; there are {known}")
    by_sink = {name: figures.by_sink[name] for name in dict.fromkeys(sinks)}
    return DrainFigures(
        seconds=max(one.seconds for one in by_sink.values()),
        target_s=figures.target_s,
        backlog=sum(one.backlog for one in by_sink.values()),
        rate_per_s=round(sum(one.rate_per_s for one in by_sink.values()), 3),
        by_sink=by_sink,
        at_ms=figures.at_ms,
    )
