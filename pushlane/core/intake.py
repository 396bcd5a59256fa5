"""Takes messages off readers a few at a time, and asks the registry what of them is over already.

A push whose process died after its delivery comes again, and nothing on the message tells that. So
whatever comes off a lane, unless nobody can have had it before, is asked about before it may go,
many lanes in one call. What has ended, or waits on another lane, is acked; the rest is at hand, and
asked about again before its lane's turn, or at that turn if it comes sooner than was thought.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from pushlane.core.lane import Job, Lane, LaneInput, Message, Why
from pushlane.core.names import is_later, is_pool
from pushlane.core.ports import Counts, LaneReader, SeqStore
from pushlane.core.retrying import Backoff
from pushlane.core.task import Span, Task

log = logging.getLogger("pushlane.intake")

STALE_S = 2.0
"""How long an answer holds: a process that was stopped for longer asks again."""

_AGAIN_S = 0.9  # twice that, and what asking takes, is less than STALE_S
_AGAIN_IN_DOUBT_S = 0.05
_ASKING_PART = 0.2
_REST_S = 0.004
_WIDEST_SPAN = 4_096
_PAGE = 128  # lanes, in one step of the event loop


class _Batch(NamedTuple):
    """Messages of one input that are asked about together; `is_at_hand` when that is once more."""

    lane: Lane
    lane_input: LaneInput
    reader: LaneReader | None
    messages: list[Message]
    is_at_hand: bool = False


_Question = tuple[Span, list[Message]]
"""A span of seqs, and the messages that have some of them."""


class Intake:
    """Fills lanes from their readers. Who opens a reader calls `fill` when that has something; the
    loop does when little is at hand.

    `find` gives this process's view of a task; `ack` gets messages of which nothing is left.
    While `in_doubt` says that others may have what is at hand, it is asked about more often. What
    nobody had before it was pulled, since `held_since_s`, nobody else has. `clock_s` is monotonic.
    """

    def __init__(
        self,
        registry: SeqStore,
        ack: Callable[[Message], None],
        find: Callable[[str], Task | None],
        counts: Counts,
        in_doubt: Callable[[], bool],
        held_since_s: Callable[[], float],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._ack = ack
        self._find = find
        self._counts = counts
        self._in_doubt = in_doubt
        self._held_since_s = held_since_s
        self._clock_s = clock_s
        self._looked_s = clock_s()
        self._took_s = 0.0
        self._waiting: list[_Batch] = []
        self._due = asyncio.Event()

    def fill(self, lane: Lane) -> None:
        """Pull messages of those of its readers of which little is at hand."""
        for lane_input in lane.inputs:
            if lane_input.is_low:
                self._pull(lane, lane_input)

    def _pull(self, lane: Lane, lane_input: LaneInput) -> None:
        taken = lane_input.pull()
        if not taken:
            return
        now_s = self._clock_s()
        messages = [Message(one, now_s, self._counts.read) for one in taken]
        lane_input.saw(messages)
        if all(one.is_first for one in taken):
            lane.add(lane_input, messages)
        else:
            self._ask(_Batch(lane, lane_input, lane_input.reader, messages))

    def retake(self, lane: Lane, oldest_s: float) -> Job | None:
        """Do as `Lane.take` for a lane that gave nothing; what is too old is asked about first."""
        self._ask_of(lane, oldest_s, is_at_hand=False)
        return lane.take(oldest_s)

    def _ask(self, batch: _Batch) -> None:
        batch.lane_input.asking += 1
        self._waiting.append(batch)
        self._due.set()

    async def run(self, lanes: Callable[[], Iterable[Lane]]) -> None:
        """Get answers, and for what stays at hand on these lanes new ones, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._get_answers())
            group.create_task(self._ask_again(lanes))

    async def _get_answers(self) -> None:
        backoff = Backoff(log, "the registry")
        while True:
            await self._due.wait()
            self._due.clear()
            batches, self._waiting = self._waiting[:_PAGE], self._waiting[_PAGE:]
            asked_s = await backoff.until_done(partial(self._drop_what_is_over, batches))
            self._counts.asked(self._clock_s() - asked_s)
            for batch in batches:
                batch.lane_input.asking -= 1
                self._hand_on(batch, asked_s)
            if any(batch.is_at_hand for batch in batches):
                self._took_s = self._clock_s() - self._looked_s
            if self._waiting:
                self._due.set()
            await asyncio.sleep(0 if self._waiting else _REST_S)  # what comes goes in one call

    async def _ask_again(self, lanes: Callable[[], Iterable[Lane]]) -> None:
        while True:
            await asyncio.sleep(_AGAIN_IN_DOUBT_S)
            since_s = self._clock_s() - self._again_s()
            if self._looked_s > since_s:
                continue
            self._looked_s = self._clock_s()
            for place, lane in enumerate(list(lanes()), 1):
                is_near = lane.near_s <= self._looked_s or self._in_doubt()
                if is_near and Why.HELD not in lane.blocked:
                    self._ask_of(lane, since_s, is_at_hand=True)
                if place % _PAGE == 0:
                    await asyncio.sleep(0)

    def _again_s(self) -> float:
        """Return how old answers may be, so that looks take no more than their part of the time."""
        if not self._in_doubt():
            return _AGAIN_S
        return min(_AGAIN_S, max(_AGAIN_IN_DOUBT_S, self._took_s / _ASKING_PART))

    def _ask_of(self, lane: Lane, since_s: float, *, is_at_hand: bool) -> None:
        """Ask about what others may have had since then; it stays at hand, or comes back to it."""
        for one in lane.inputs:
            if one.messages and not one.asking and self._is_old(one, since_s):
                messages = one.at_hand() if is_at_hand else one.withdraw()
                self._ask(_Batch(lane, one, one.reader, messages, is_at_hand))

    def _is_old(self, lane_input: LaneInput, since_s: float) -> bool:
        """Tell whether others may have had something at hand since then."""
        now_s, held_s = self._clock_s(), self._held_since_s()
        old = [message for message in lane_input.at_hand() if message.asked_s < since_s]
        for message in old:
            if message.taken.is_first and message.pulled_s >= held_s:
                message.asked_s = now_s
        return any(message.asked_s < since_s for message in old)

    async def _drop_what_is_over(self, batches: Sequence[_Batch]) -> float:
        """Drop from each message those of its pushes that have ended, or wait elsewhere.

        Returns the time before the question: this process may be stopped until it hears the answer.
        """
        asked_s = self._clock_s()
        questions = [question for batch in batches for question in self._questions(batch)]
        answers = await self._registry.gone([span for span, _ in questions])
        for (span, messages), bits in zip(questions, answers, strict=True):
            if bits:
                self._counts.repeats += sum(one.drop(bits, span.first) for one in messages)
        return asked_s

    def _questions(self, batch: _Batch) -> Iterator[_Question]:
        by_task: dict[str, list[tuple[int, int, Message]]] = defaultdict(list)
        for message in batch.messages:
            if message.error is None and (seqs := message.seqs()):
                for first, last in _narrow(seqs):
                    by_task[message.task_id].append((first, last, message))
        for task_id, some in by_task.items():
            is_home = self._is_home(task_id, batch.lane_input.name)
            for run in _runs(some):
                last = max(last for _, last, _ in run)
                span = Span(task_id, run[0][0], last, moves=is_home)
                yield span, [message for _, _, message in run]

    def _is_home(self, task_id: str, lane: str) -> bool:
        """Tell whether pushes of the task leave this lane for others, and none comes from others.

        A pool's main lane is known as one before the task is: nothing ever moves to it.
        """
        if is_pool(lane):
            return not is_later(lane)
        task = self._find(task_id)
        return task is not None and (task.first_lane or task.lane) == lane

    def _hand_on(self, batch: _Batch, asked_s: float) -> None:
        lane, lane_input, reader, messages, is_at_hand = batch
        for message in messages:
            message.asked_s = asked_s
        if lane.retired or lane_input.reader is not reader:  # it goes to who reads the lane now
            return
        for message in messages:
            if not message.left:
                self._ack(message)
        if is_at_hand:
            lane_input.remove_spent()
            messages = []
        lane.add(lane_input, (message for message in messages if not message.is_spent))
        self.fill(lane)  # nothing may be left of it, and nobody takes what is not at hand


def _narrow(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each part, none wider than one question may be."""
    first = last = seqs[0]
    if seqs[-1] - first < _WIDEST_SPAN:
        yield first, seqs[-1]
        return
    for seq in seqs:
        if seq - first >= _WIDEST_SPAN:
            yield first, last
            first = seq
        last = seq
    yield first, last


def _runs(some: list[tuple[int, int, Message]]) -> Iterator[list[tuple[int, int, Message]]]:
    """Yield them in the order of their seqs, as many together as one question may be wide."""
    some.sort(key=itemgetter(0))
    start = 0
    for place, (_, last, _) in enumerate(some):
        if last - some[start][0] >= _WIDEST_SPAN:
            yield some[start:place]
            start = place
    yield some[start:]
