"""How it goes: what a process has done, once a minute in its log, and how fast each task is.

It only counts and reads. Dead pushes are told by the class of their reasons, which names nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TypeVar

from pushlane.core.endings import Ending
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Progress
from pushlane.model.presence import MOST_TASKS

log = logging.getLogger("pushlane.progress")

_EVERY_S = 60.0
_JUST_NOW_S = 10
_MOST_CLASSES = 5
_WORDS = {kind: "again" if kind is Kind.RETRY else str(kind) for kind in Kind}
_Key = TypeVar("_Key", bound=str)
_ORDER = (Kind.DELIVERED, Kind.DEAD, Kind.RETRY, Kind.EXPIRED, Kind.DROPPED)


@dataclass(frozen=True, kw_only=True)
class DispatchProgress:
    """What a process has done at all its sinks since its start.

    `died_of` counts dead pushes by class. `resting` says of each sink that gets fewer pushes than
    there are that it does. `left` is about how many pushes are left at its sinks, None where this
    process does not know.
    """

    outcomes: Mapping[Kind, int]
    died_of: Mapping[str, int]
    in_flight: int
    resting: Sequence[str] = ()
    left: int | None = None

    @property
    def ended(self) -> int:
        """The pushes that have ended, in whatever way."""
        return sum(count for kind, count in self.outcomes.items() if kind is not Kind.RETRY)


def counts_texts(
    outcomes: Mapping[Kind, int], died_of: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Yield `1,204 delivered`, then `33 dead (30 HTTP 404, 3 no answer)` and others that are not 0.

    `again` are pushes that are tried again.
    """
    for kind in _ORDER:
        count = outcomes.get(kind, 0)
        if count or kind is Kind.DELIVERED:
            classes = _classes_text(died_of or {}) if kind is Kind.DEAD else ""
            yield f"{count:,} {_WORDS[kind]}{classes}"


def _classes_text(died_of: Mapping[str, int]) -> str:
    named = nlargest(_MOST_CLASSES, ((count, reason) for reason, count in died_of.items()))
    others = sum(died_of.values()) - sum(count for count, _ in named)
    if len(died_of) == 1:
        return f" ({next(iter(died_of))})"
    texts = [f"{count:,} {reason}" for count, reason in named]
    if others:
        texts.append(f"{others:,} of other reasons")
    return f" ({', '.join(texts)})" if texts else ""


class ProgressLog:
    """Says once a minute what became of pushes in it; nothing of a minute without any."""

    def __init__(
        self, look: Callable[[], DispatchProgress], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._clock_s = clock_s
        self._before, self._before_s = look(), clock_s()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self.say()

    def say(self) -> None:
        """Tell of what became of pushes since the last call, if anything did."""
        now, now_s = self._look(), self._clock_s()
        before, passed_s = self._before, max(1.0, now_s - self._before_s)
        self._before, self._before_s = now, now_s
        outcomes = _more(now.outcomes, before.outcomes)
        if not outcomes:
            return
        counts = ", ".join(counts_texts(outcomes, _more(now.died_of, before.died_of)))
        per_s = (now.ended - before.ended) / passed_s
        log.info(
            "%s in the last %.0f s: %s/s; %d in flight%s",
            counts,
            passed_s,
            f"{per_s:,.3g}" if per_s < 100 else f"{per_s:,.0f}",
            now.in_flight,
            "".join(f"; {text}" for text in now.resting),
            extra={"action": "progress"},
        )


def _more(now: Mapping[_Key, int], before: Mapping[_Key, int]) -> dict[_Key, int]:
    """Return by key how many were added since."""
    added = {key: count - before.get(key, 0) for key, count in now.items()}
    return {key: count for key, count in added.items() if count}


class TaskRates:
    """Hears of what ended, and tells how fast each task of a line was in the last 10 s."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._seconds: deque[tuple[int, Counter[str]]] = deque()

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        second = int(self._clock_s())
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget(second)
            self._seconds.append((second, Counter()))
        counts = self._seconds[-1][1]
        for group in finished:
            counts[group.task_id] += len(group.seqs)

    def per_s(self) -> dict[str, float]:
        """Return by id how many pushes a second ended, of the tasks of which most did."""
        now_s = self._clock_s()
        self._forget(int(now_s))
        total: Counter[str] = Counter()
        for _, counts in self._seconds:
            total.update(counts)
        passed_s = max(1.0, min(_JUST_NOW_S, now_s - self._began_s))
        return {task_id: round(n / passed_s, 3) for task_id, n in total.most_common(MOST_TASKS)}

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - _JUST_NOW_S:
            self._seconds.popleft()
