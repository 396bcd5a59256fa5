"""A lane as a dispatcher sees it, with what is in hand of it: messages and jobs.

A lane may have a later lane, where its pushes wait for their time. Both count as one lane here: one
place in the ring, one quota, so pushes that come due never give a task a second turn.

A lane speaks for itself: whatever changes whether it may move marks it, and the loop takes the
marks (`core.lanes`). So nobody has to remember to wake it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import msgspec

from pushlane.core.errors import MalformedPush, OutdatedFormat, PushlaneError, UnknownFormat
from pushlane.core.names import is_pool, later_lane
from pushlane.core.ports import LaneReader, Taken
from pushlane.core.push import MAX_PUSH_BYTES, Push, decode, decode_many
from pushlane.core.task import Level, Task
from pushlane.wire import Bundle, is_bundle, open_bundle

ROOM = 1_000
_MORE_WAIT_S = 0.4  # a broker's pauses on a busy machine have been seen to outlast 0.25
_ANSWER_WAIT_S = 0.1
_MOST_ASIDE = 31

Place = tuple[str, int]
"""Task id and seq: the same for every copy of a push."""


class Why(StrEnum):
    """The reason for which a lane is blocked, or a push in hand waits on it; the gravest first."""

    FORMAT = "format"  # only a newer version can read something of it: it is left to others
    DOUBT = "doubt"  # the registry does not know a task of its: it is left alone
    BUDGET = "budget"  # a limit has no room
    CROWDED = "crowded"  # so many outcomes of its pushes are not durable yet
    LATER_FULL = "delay-full"  # so many pushes wait for their time that only those due may go
    KEYS = "keys"  # pushes wait for others of their key
    LOOK_UP = "look-up"  # the registry is asked for the task of pushes
    REFUSED = "refused"  # the sink did not take them: they wait for another try
    HELD = "held"  # its task is paused, or starts later


class Message:
    """A message off a lane, with what is left of it.

    It is to be acked when the last of its pushes is settled. Until then all of it comes again after
    a crash; what was settled of it is known by the registry, and dropped. `on_read` hears how long
    reading its pushes took, in seconds.

    Fields, and who writes them: `pulled_s`, when it came off its reader, and `asked_s`, when the
    registry was last asked about it, both on a monotonic clock: Intake. `left` counts its pushes
    that are not settled: itself, and the Flusher. It `is_spent` when none is left to be taken:
    itself. `error` says why nothing of it can be read, not even whose pushes it has; then it is one
    push that nobody knows: itself.
    """

    __slots__ = (
        "_bundle",
        "_gone",
        "_next",
        "_on_read",
        "_pushes",
        "asked_s",
        "error",
        "is_spent",
        "left",
        "pulled_s",
        "taken",
    )

    def __init__(
        self, taken: Taken, asked_s: float = 0.0, on_read: Callable[[float], None] | None = None
    ) -> None:
        self.taken = taken
        self._on_read = on_read
        self.pulled_s = self.asked_s = asked_s
        self.error: PushlaneError | None = None
        self._pushes: list[Push] | None = None  # once they are read
        self._bundle = _NOTHING
        self._next = 0
        self._gone = 0
        try:
            if taken.is_part:
                raise OutdatedFormat("a batch of messages")
            if is_bundle(taken.body):
                self._bundle = open_bundle(taken.body)
            else:
                push = decode(taken.body)
                self._bundle = Bundle(push.task_id, (push.seq,), ())
                self._pushes = [push]
        except (MalformedPush, UnknownFormat) as error:
            self.error = error
        self.left = len(self._bundle)
        self.is_spent = False

    @property
    def task_id(self) -> str:
        """Empty when that cannot be read."""
        return self._bundle.task_id

    @property
    def last_seq(self) -> int:
        return self._bundle.seqs[-1]

    @property
    def untaken(self) -> int:
        """The number of its pushes that can still be taken."""
        return len(self._bundle) - self._next - (self._gone >> self._next).bit_count()

    def seqs(self) -> list[int]:
        """Return the seqs that can still be taken, in rising order."""
        places = range(self._next, len(self._bundle))
        return [self._bundle.seqs[place] for place in places if not self._gone >> place & 1]

    def take(self, lane: Lane) -> Job:
        """Take the next push, in hand of this lane; only while the message is not spent."""
        place = self._next
        self._go_on(place + 1)
        if self._pushes is None:
            self._pushes = self._read()
        if self._pushes:
            push = self._pushes[place]
            return Job(lane, self, place, push)
        try:
            if self.error is not None:
                raise self.error
            return Job(lane, self, place, decode(self._bundle.body(place)))
        except (MalformedPush, UnknownFormat) as error:
            nobody = Push(self._bundle.task_id, self._bundle.seqs[place], "")
            return Job(lane, self, place, nobody, error)

    def _read(self) -> list[Push]:
        """Read all of its pushes at once; none when one of them cannot be read."""
        if self.error is not None:
            return []
        try:
            began_s = time.perf_counter()
            pushes = decode_many(self._bundle.all_bodies())
            if self._on_read is not None:
                self._on_read(time.perf_counter() - began_s)
        except MalformedPush:
            return []
        task_id = self._bundle.task_id
        for push, seq in zip(pushes, self._bundle.seqs, strict=True):
            if push.seq != seq or push.task_id != task_id:  # one cut short took of those behind it
                return []
        return pushes

    def drop(self, bits: int, first_seq: int) -> int:
        """Leave out what is not taken of those whose bit is set, bit n for the seq `first_seq + n`.

        Returns how many these were.
        """
        dropped = 0
        for place in range(self._next, len(self._bundle)):
            seq = self._bundle.seqs[place]
            if seq >= first_seq and bits >> (seq - first_seq) & 1 and not self._gone >> place & 1:
                self._gone |= 1 << place
                dropped += 1
        self.left -= dropped
        self._go_on(self._next)
        return dropped

    def body(self, place: int) -> bytes:
        """Return a push as it travels alone."""
        return self._bundle.body(place) if is_bundle(self.taken.body) else self.taken.body

    def raw(self, place: int) -> bytes:
        """Return the bytes of a push that cannot be read, cut to what a dead-letter lane takes."""
        if self.error is None and not self._bundle.problem:
            return self._bundle.fields(place)[:MAX_PUSH_BYTES]
        return b"" if place else self.taken.body[:MAX_PUSH_BYTES]

    def _go_on(self, place: int) -> None:
        if self._gone:
            while self._gone >> place & 1:
                place += 1
        self._next = place
        self.is_spent = place >= len(self._bundle.seqs)


_NOTHING = Bundle("", (0,), ())
_NO_TASK = Task(id="", level=Level.LOW, lane="")


class Job(msgspec.Struct, gc=False, eq=False):
    """A push in a dispatcher's hands, from its lane to its ack: one object all the way.

    Fields, and who writes them: `lane`, `message`, `place` (which of the message's pushes it is)
    and `error` (why it cannot be read; then `push` has its id alone): Message.take. `push`: the
    same, and a guard that counts something against it. `task`: Admission, each time. `guards`,
    those that it is to ask: Admission. `permit`, what the breaker gave it to go with: the Breaker.
    `dispatched_at_ms`, when it went to the sink (Unix ms), 0 as long as it has not: Slots.
    `cleared_s`, when a gate found that it is its turn, on a monotonic clock: that gate. `aside` has
    since when (monotonic) it waited apart from its lane, and for what, empty when no longer: Lane.
    """

    lane: Lane
    message: Message
    place: int
    push: Push
    error: PushlaneError | None = None
    task: Task = _NO_TASK
    guards: tuple[Any, ...] = ()
    permit: int = 0
    dispatched_at_ms: int = 0
    cleared_s: float = 0.0
    aside: tuple[tuple[str, float], ...] = ()

    def set_aside(self, why: str) -> None:
        """Note that it waits for this from now on, empty: with its lane again."""
        if why != (self.aside[-1][0] if self.aside else ""):
            self.aside = (*self.aside[-_MOST_ASIDE:], (why, time.monotonic()))

    @property
    def seq(self) -> int:
        return self.push.seq

    @property
    def body(self) -> bytes:
        """The push as it came, and as it travels alone."""
        return self.message.body(self.place)

    @property
    def came_on(self) -> str:
        """The name of the lane that it was taken off: the later lane has one of its own."""
        return self.message.taken.lane


class LaneInput:
    """A reader, once it is open, and what of it was asked about and may be taken.

    `has_more`: the reader has something. `asking` counts the batches that are being asked about,
    and `last_seq` is the highest that came off the reader. Of the `depth` messages that the reader
    and this may have at hand, a quarter is pulled off the reader at once, when an eighth is left
    here. Tasks that share the lane take turns.

    Fields, and who writes them: `reader`, and `wanted` (it is to have one): the opener of readers;
    `has_more`: the reader's signal, and `pull`; `asking`: Intake; all else: the methods here.
    """

    __slots__ = (
        "_at_hand",
        "_is_shared",
        "asking",
        "depth",
        "has_more",
        "last_seq",
        "messages",
        "name",
        "reader",
        "wanted",
    )

    def __init__(self, name: str, depth: int, *, wanted: bool) -> None:
        self.name = name
        self.depth = depth
        self.wanted = wanted
        self.reader: LaneReader | None = None
        self._is_shared = is_pool(name)
        self._at_hand: deque[deque[Message]] = deque()  # of each task
        self.messages = 0
        self.last_seq = 0
        self.has_more = False
        self.asking = 0

    @property
    def is_low(self) -> bool:
        """Tell whether it is time to pull more off the reader."""
        return self.has_more and not self.asking and self.messages <= max(1, self.depth // 8)

    def ready(self) -> None:
        """Note that the reader has something."""
        self.has_more = True

    def close(self) -> LaneReader | None:
        """Forget what is at hand, and return the reader, which is to be closed."""
        reader, self.reader = self.reader, None
        self.has_more = False
        self.withdraw()
        return reader

    def pull(self) -> list[Taken]:
        """Take the next few messages of the reader, which says when it has something again."""
        pulled: list[Taken] = []
        reader = self.reader
        most = max(1, self.depth // 4)
        while self.has_more and reader is not None and len(pulled) < most:
            if (taken := reader.take()) is None:
                self.has_more = False
            else:
                pulled.append(taken)
        return pulled

    def at_hand(self) -> list[Message]:
        """List the messages at hand. Any thread may ask: each task's are copied in one go."""
        return [message for some in tuple(self._at_hand) for message in tuple(some)]

    def add(self, messages: Iterable[Message]) -> None:
        """Have messages at hand that were asked about."""
        by_task = {self._turn_of(some[0]): some for some in self._at_hand}
        for message in messages:
            turn = self._turn_of(message)
            some = by_task.get(turn)
            if some is None:
                some = by_task[turn] = deque()
                self._at_hand.append(some)
            some.append(message)
            self.messages += 1

    def _turn_of(self, message: Message) -> str:
        """Return whose turn it waits for. A task's own lane has one, so nothing is overtaken."""
        return message.task_id if self._is_shared else ""

    def take(self, lane: Lane, oldest_s: float) -> Job | None:
        """Take the next push; each task has its turn.

        It is of a message that was asked about since `oldest_s`, on a monotonic clock.
        """
        if not self._at_hand or self._at_hand[0][0].asked_s < oldest_s:
            return None
        mine = self._at_hand[0]
        job = mine[0].take(lane)
        if mine[0].is_spent:
            mine.popleft()
            self.messages -= 1
        if not mine:
            self._at_hand.popleft()
        elif len(self._at_hand) > 1:
            self._at_hand.rotate(-1)
        return job

    def remove_spent(self) -> None:
        """Drop the messages of which every push has been taken or has ended."""
        left = [message for message in self.at_hand() if not message.is_spent]
        if len(left) < self.messages:
            self.withdraw()
            self.add(left)

    def saw(self, messages: Iterable[Message]) -> None:
        """Note how far the lane has been read."""
        self.last_seq = max(self.last_seq, *(message.last_seq for message in messages))

    def refill_wait_s(self) -> float:
        if self.asking:
            return _ANSWER_WAIT_S
        return self.reader.refill_wait_s() if self.reader is not None else 0.0

    def withdraw(self) -> list[Message]:
        """Have nothing at hand any more; return what was."""
        messages = self.at_hand()
        self._at_hand.clear()
        self.messages = 0
        return messages


class Lane:
    """A lane that this process reads. Its methods change it, but for `deferred` and `unsettled`.

    `level`, `highest_seq` (of its task's pushes; 0 while that is not known, or where several share
    the lane): Lanes, as its task says. `blocked` has the reasons for which nothing of it may
    go: whoever has one, through `block` and `unblock`. `again_at_s` is when a lane that is left to
    others is tried again. With `later_full` only pushes that come due may go, and `deferred` counts
    those sent to wait since a look set it to 0: Settler. `in_hand` counts pushes taken
    but not settled: the readers are closed only when there are none. `parked` are those of them
    that wait here, each with why: no more are taken while there are `room`. `unsettled` counts
    those whose outcome is not durable yet: Flusher. From `near_s` on (monotonic) an answer holds
    until its next turn, by the time between the last two: itself. `times` has what it did when:
    whoever watches it.
    """

    __slots__ = (
        "_changed",
        "_oldest_s",
        "_returned",
        "again_at_s",
        "blocked",
        "deferred",
        "highest_seq",
        "in_hand",
        "later",
        "later_full",
        "level",
        "main",
        "name",
        "near_s",
        "parked",
        "retired",
        "room",
        "times",
        "unsettled",
    )

    def __init__(
        self,
        name: str,
        level: Level,
        depth: int = 128,
        later_depth: int = 0,
        mark: Callable[[Lane], None] | None = None,
    ) -> None:
        self.name = name
        self.level = level
        self.main = LaneInput(name, depth, wanted=True)
        self.later = LaneInput(later_lane(name), later_depth or depth, wanted=False)
        self._changed = mark or (lambda lane: None)  # it takes no turns
        self._returned: deque[Job] | None = None  # made when it is needed: most lanes never do
        self.blocked: frozenset[Why] = _NOTHING_BLOCKS
        self.parked: dict[Job, Why] = {}
        self.room = ROOM
        self.in_hand = 0
        self.again_at_s = 0.0
        self.later_full = False
        self.deferred = 0
        self.unsettled = 0
        self.highest_seq = 0
        self.retired = False
        self.times: Any = None
        self.near_s, self._oldest_s = -math.inf, math.inf

    @property
    def inputs(self) -> tuple[LaneInput, LaneInput]:
        return self.main, self.later

    @property
    def fed(self) -> bool:
        """Tell whether there is something new that may be taken."""
        return bool(
            (self.later.messages and self._takes_due) or (self.main.messages and self._takes_new)
        )

    @property
    def is_low(self) -> bool:
        """Tell whether it is time to pull more off one of its readers."""
        return self.main.is_low or self.later.is_low

    @property
    def may_move(self) -> bool:
        """Tell whether it belongs in the ring: something may be taken and nothing blocks it."""
        return not self.blocked and bool(self._returned or self.fed)

    @property
    def is_left(self) -> bool:
        """Tell whether it is left to others for now."""
        return Why.FORMAT in self.blocked or Why.DOUBT in self.blocked

    @property
    def is_stuck(self) -> bool:
        """Tell whether there is something new, but too much is parked to take it."""
        has_new = self.later.messages or (self.main.messages and not self.later_full)
        return bool(has_new) and not self.fed

    @property
    def _takes_new(self) -> bool:
        return not self.later_full and len(self.parked) < self.room

    @property
    def _takes_due(self) -> bool:
        """Tell whether pushes that come due may be taken: they leave the main lane some room."""
        return len(self.parked) < self.room // 2

    @property
    def pending(self) -> int:
        """Return how many pushes were taken and are neither settled nor given back."""
        return self.in_hand - len(self._returned or ())

    def take(self, oldest_s: float = 0.0) -> Job | None:
        """Take the next push: first what was given back, then what came due, then the rest.

        Only one that was asked about since `oldest_s`, on a monotonic clock.
        """
        if self._returned:
            return self._returned.popleft()
        job = None
        if self.later.messages and self._takes_due:
            job = self.later.take(self, oldest_s)
        if job is None and self.main.messages and self._takes_new:
            job = self.main.take(self, oldest_s)
        if job is not None:
            self.in_hand += 1
            if oldest_s != self._oldest_s:
                self.near_s, self._oldest_s = 2 * oldest_s - self._oldest_s, oldest_s
        return job

    def add(self, lane_input: LaneInput, messages: Iterable[Message]) -> None:
        """Have messages at hand that were asked about."""
        lane_input.add(messages)
        self._changed(self)

    def opened(self, lane_input: LaneInput, reader: LaneReader | None) -> None:
        """Take messages off this reader from now on, unless the lane was left meanwhile."""
        lane_input.reader = reader
        self._changed(self)

    def refill_wait_s(self) -> float:
        """Return for how long to wait for more, which a reader knows of, or of which the last push
        of the task has not come yet. Another process may have that.
        """
        if not self._takes_due:
            return 0.0
        if self.later_full:
            return self.later.refill_wait_s()
        more_s = _MORE_WAIT_S if self.main.last_seq < self.highest_seq else 0.0
        return max(more_s, self.main.refill_wait_s(), self.later.refill_wait_s())

    def let_go(self) -> list[LaneReader]:
        """Return its readers, to be closed: what was given back goes to others with them."""
        self.in_hand -= len(self._returned or ())
        self._returned = None
        readers = [lane_input.close() for lane_input in self.inputs]
        return [reader for reader in readers if reader is not None]

    def give_back(self, job: Job) -> None:
        """Make a push that could not go yet the next to be taken."""
        job.dispatched_at_ms = 0
        job.set_aside("")
        if self._returned is None:
            self._returned = deque()
        self._returned.append(job)
        self._changed(self)

    def park(self, job: Job, why: Why) -> None:
        """Let a push that was taken wait here: this is the one place where pushes in hand wait."""
        self.parked[job] = why
        job.set_aside(why)
        self._changed(self)

    def unpark(self, job: Job) -> None:
        """Let a push wait here no longer: it is settled, or goes elsewhere."""
        del self.parked[job]
        job.set_aside("")
        self._changed(self)

    def release(self, job: Job) -> None:
        """Give a push back that waited here."""
        self.unpark(job)
        self.give_back(job)

    def set_room(self, room: int) -> None:
        """Let so many pushes be parked."""
        self.room = room
        self._changed(self)

    def block(self, why: Why) -> None:
        """Let nothing of it go for this reason."""
        if why not in self.blocked:
            self.blocked |= {why}
            self._changed(self)

    def unblock(self, why: Why) -> None:
        """End a reason; another one may hold on."""
        if why in self.blocked:
            self.blocked -= {why}
            self._changed(self)

    def leave(self, why: Why, again_at_s: float) -> None:
        """Leave it to other processes until then, with the push that was taken last."""
        self.in_hand -= 1
        self.again_at_s = again_at_s
        self.blocked |= {why}
        self._changed(self)

    def read_again(self) -> None:
        """Let this process read it again."""
        self.blocked -= {Why.FORMAT, Why.DOUBT}

    def settled(self, count: int) -> None:
        """Count off pushes whose outcome is durable."""
        self.in_hand -= count
        self.unsettled -= count
        self._changed(self)

    def set_later_full(self, full: bool) -> None:
        """Let only those pushes go that come due, or all again."""
        self.later_full = full
        self._changed(self)

    def set_task(self, level: Level, highest_seq: int, *, held: bool) -> None:
        """Take over what its task says now; `highest_seq` is 0 where it is not known."""
        self.level = level
        self.highest_seq = highest_seq
        (self.block if held else self.unblock)(Why.HELD)
        self._changed(self)

    def retire(self) -> None:
        """Read no more of it for good."""
        self.retired = True
        self._changed(self)


_NOTHING_BLOCKS: frozenset[Why] = frozenset()
