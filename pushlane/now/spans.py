"""Remembers since when what holds tasks does so: what was there at the looks of the last hour.

Pure. It is lost with the process, and nobody knows what was while nobody looked: it says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pushlane.now.verdict import Held

WATCHED_MS = 30_000
"""After so long without a look nobody knows what was in between."""

MOST = 500
"""So many that are over are kept, and so many that still hold."""

_SAME_MS = 600_000
"""A cause that holds before and after a shorter gap without samples counts as one span."""

_AWAY_MS = 5_000  # what is there again by then was never gone


@dataclass(frozen=True)
class Span:
    """A time during which something held tasks, from one look to another (Unix ms).

    `is_open` while it still does. It `may_begin_sooner` or `may_end_later` where nobody looked
    before or after.
    """

    held: Held
    from_ms: int
    until_ms: int
    is_open: bool = True
    may_begin_sooner: bool = False
    may_end_later: bool = False


class Spans:
    """The spans of all that held tasks at the last looks."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str], Span] = {}
        self._over: deque[Span] = deque(maxlen=MOST)
        self._looked_ms = -WATCHED_MS

    def take(self, holds: Sequence[Held], at_ms: int) -> None:
        """Note what holds tasks at a look."""
        away_ms = at_ms - self._looked_ms
        is_watched = away_ms < WATCHED_MS
        if not is_watched:
            still = {one.key for one in holds} if away_ms < _SAME_MS else set()
            for key in [key for key in self._open if key not in still]:
                gone = self._open.pop(key)
                self._over.append(replace(gone, is_open=False, may_end_later=True))
        self._looked_ms = at_ms
        for one in holds:
            known = self._open.get(one.key)
            if known is not None and one.since_ms > known.until_ms:  # it was gone in between
                self._over.append(replace(known, is_open=False))
                known = None
            if known is None and len(self._open) >= MOST:
                continue
            if known is None:
                is_told = bool(one.since_ms)
                from_ms = one.since_ms if is_told else at_ms
                known = Span(one, from_ms, at_ms, may_begin_sooner=not (is_told or is_watched))
            self._open[one.key] = replace(known, held=one, until_ms=at_ms)
        for key in [key for key, one in self._open.items() if one.until_ms + _AWAY_MS <= at_ms]:
            self._over.append(replace(self._open.pop(key), is_open=False))

    def of(self, held: Held) -> Span | None:
        """Return since when something holds tasks that does so now; None if it is not known."""
        return self._open.get(held.key)

    def since(self, at_ms: int) -> Iterator[Span]:
        """Yield what held tasks at some time since then (Unix ms), in the order of their ends."""
        yield from (one for one in self._over if one.until_ms >= at_ms)
        yield from self._open.values()
