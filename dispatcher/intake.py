"""Takes messages off readers a few at a time, and asks the registry what of them is over already.

A push whose process died after its delivery comes again, and nothing on the message tells that. So
whatever comes off a lane, unless nobody can have had it before, is asked about before it may go,
many lanes in one call. What has ended, or waits on another lane, is acked; the rest is at hand, and
asked about again for as long as it stays there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dispatcher.backoff import Backoff
from dispatcher.lane import Inlet, OpenLane
from dispatcher.settle import Settler
from dispatcher.stats import Stats
from lanes.errors import MalformedPush, UnknownFormat, Unreachable
from lanes.ports import Registry, Taken
from lanes.push import decode
from lanes.task import DeliveryMode, Span, Task

log = logging.getLogger("pushlane.intake")

STALE_S = 2.0
"""How long an answer holds: a process that was stopped for longer asks again."""

_AGAIN_S = 1.0
_REST_S = 0.004
_SILENCE_S = 0.25
_WIDEST_SPAN = 4_096


class _Batch(NamedTuple):
    """Messages of one inlet that are asked about together; `is_at_hand` when that is once more."""

    lane: OpenLane
    inlet: Inlet
    taken: list[Taken]
    is_at_hand: bool = False


class Intake:
    """`find` gives this process's view of a task; `on_ready` hears that a lane has more at hand."""

    def __init__(
        self,
        registry: Registry,
        settler: Settler,
        find: Callable[[str], Task | None],
        on_ready: Callable[[OpenLane], None],
        stats: Stats,
    ) -> None:
        self._registry = registry
        self._settler = settler
        self._find = find
        self._on_ready = on_ready
        self._stats = stats
        self._waiting: list[_Batch] = []
        self._due = asyncio.Event()

    def fill(self, lane: OpenLane) -> None:
        """Pull messages of those of its readers of which little is at hand."""
        for inlet in lane.inlets:
            if inlet.is_low:
                self._pull(lane, inlet)

    def _pull(self, lane: OpenLane, inlet: Inlet) -> None:
        taken = inlet.pull()
        if not taken:
            return
        now_s = time.monotonic()
        are_first = True
        for one in taken:
            one.asked_s = now_s
            are_first = are_first and one.is_first
            _read(one)
        if are_first:
            inlet.add(taken)
            self._on_ready(lane)
        else:
            self._ask(_Batch(lane, inlet, taken))

    def _ask(self, batch: _Batch) -> None:
        batch.inlet.asking += 1
        self._waiting.append(batch)
        self._due.set()

    async def run(self, lanes: Callable[[], Iterable[OpenLane]]) -> None:
        """Get answers, and for what stays at hand on these lanes new ones, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._get_answers())
            group.create_task(self._ask_again(lanes))

    async def _get_answers(self) -> None:
        backoff = Backoff(log, "the registry")
        while True:
            await self._due.wait()
            self._due.clear()
            batches, self._waiting = self._waiting, []
            try:
                over = await self._over(batches)
            except Unreachable as error:
                self._go_on_unasked(batches)
                await backoff.wait(error)
                continue
            backoff.reset()
            for batch in batches:
                batch.inlet.asking -= 1
                self._hand_on(batch, over)
            await asyncio.sleep(_REST_S)  # what comes meanwhile goes in one call

    async def _ask_again(self, lanes: Callable[[], Iterable[OpenLane]]) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            since_s = time.monotonic() - _AGAIN_S
            for lane in lanes():
                for inlet in lane.inlets:
                    is_old = any(one.asked_s < since_s for one in inlet.at_hand)
                    if is_old and not lane.held:
                        self._ask(_Batch(lane, inlet, list(inlet.at_hand), is_at_hand=True))

    async def _over(self, batches: Sequence[_Batch]) -> frozenset[int]:
        """The identities of those messages whose push has ended, or waits elsewhere."""
        asked = [question for batch in batches for question in self._questions(batch)]
        answers = await self._answers([span for span, _ in asked])
        return frozenset(
            id(one)
            for (span, some), bits in zip(asked, answers, strict=True)
            if bits
            for one in some
            if one.push is not None and bits >> (one.push.seq - span.first) & 1
        )

    async def _answers(self, spans: Sequence[Span]) -> Sequence[int]:
        try:
            async with asyncio.timeout(_SILENCE_S):
                return await self._registry.gone(spans)
        except TimeoutError as error:
            raise Unreachable(f"no answer within {_SILENCE_S:g} s") from error

    def _questions(self, batch: _Batch) -> Iterator[tuple[Span, list[Taken]]]:
        """Spans of seqs, with the messages in each."""
        by_task: dict[str, list[tuple[int, Taken]]] = defaultdict(list)
        for one in batch.taken:
            if one.push is not None:
                by_task[one.push.task_id].append((one.push.seq, one))
        for task_id, some in by_task.items():
            task = self._find(task_id)
            is_home = task is not None and (task.first_lane or task.lane) == batch.inlet.name
            for run in _runs(some):
                span = Span(task_id, run[0][0], run[-1][0], moves=is_home)
                yield span, [one for _, one in run]

    def _go_on_unasked(self, batches: Sequence[_Batch]) -> None:
        """What may be repeated does not wait for a registry that is silent."""
        for batch in batches:
            batch.inlet.asking -= 1
            going = [one for one in batch.taken if self._may_repeat(one)]
            self._stats.unasked += len(going)
            self._hand_on(batch._replace(taken=going), frozenset())
            if left := [one for one in batch.taken if not self._may_repeat(one)]:
                self._ask(batch._replace(taken=left))

    def _may_repeat(self, taken: Taken) -> bool:
        task = self._find(taken.push.task_id) if taken.push is not None else None
        return task is not None and task.delivery is DeliveryMode.AT_LEAST_ONCE

    def _hand_on(self, batch: _Batch, over: frozenset[int]) -> None:
        lane, inlet, taken, is_at_hand = batch
        now_s = time.monotonic()
        for one in taken:
            one.asked_s = now_s
        if lane.retired or inlet.reader is None:  # it goes to who reads the lane now
            return
        ended = [one for one in taken if id(one) in over] if over else []
        if is_at_hand:
            ended = inlet.without(ended)
        else:
            inlet.add([one for one in taken if id(one) not in over] if ended else taken)
        for one in ended:
            assert one.push is not None
            lane.in_hand += 1
            self._settler.ack(lane, one, one.push)
        self._stats.repeats += len(ended)
        self.fill(lane)  # nothing may be left of it, and nobody takes what is not at hand
        self._on_ready(lane)


def _read(taken: Taken) -> None:
    try:
        taken.push = decode(taken.body)
    except (MalformedPush, UnknownFormat):  # admission looks after it
        return


def _runs(some: list[tuple[int, Taken]]) -> Iterator[list[tuple[int, Taken]]]:
    """Seqs in order, in runs of which none is wider than one question may be."""
    some.sort(key=lambda pair: pair[0])
    start = 0
    for place, (seq, _) in enumerate(some):
        if seq - some[start][0] >= _WIDEST_SPAN:
            yield some[start:place]
            start = place
    yield some[start:]
