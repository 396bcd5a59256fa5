"""A task: one stream of pushes, with its level, quota, state and lane, and how far it is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput, InvalidChange
from pushlane.core.names import DEFAULT_SINK, is_pool, lane_at, later_lane, own_lane
from pushlane.core.push import Kind, Push

MAX_WEIGHT = 1000
MAX_QUOTA = 10_000
MAX_ATTEMPTS = 100


class Level(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class State(StrEnum):
    """submitted → running → done | cancelled | expired; paused and back at any time between."""

    SUBMITTED = "submitted"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL_STATES


TERMINAL_STATES = (State.DONE, State.CANCELLED, State.EXPIRED)
ACTIVE_STATES = tuple(state for state in State if state not in TERMINAL_STATES)


class DeliveryMode(StrEnum):
    """The promise for a push when a process dies or a service goes (docs/guarantees.md)."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    ONCE = "once"


class OnUnknown(StrEnum):
    """The fate of a `once` push whose process was lost before it could say how it went."""

    RESEND = "resend"
    BURY = "bury"


class Weights(msgspec.Struct, frozen=True):
    """The shares of the levels: 6:3:1 gives high 60 % of the sink while all three have a backlog.

    A level of weight 0 is served only while no other level has anything to send.
    """

    high: int = 6
    medium: int = 3
    low: int = 1

    @staticmethod
    def parse(text: str) -> Weights:
        """Return the weights in a text like `6:3:1`.

        Raises:
            BadInput: not three whole numbers from 0 to 1000, or all of them zero.
        """
        if not re.fullmatch(r"\d{1,6}:\d{1,6}:\d{1,6}", text):
            raise BadInput(
                f"level weights {text!r} are not of the form HIGH:MEDIUM:LOW in whole numbers; "
                "try 6:3:1"
            )
        weights = Weights(*map(int, text.split(":")))
        if not any(weights.by_level().values()):
            raise BadInput(f"level weights {text!r} are all zero: nothing would be sent; try 6:3:1")
        if max(weights.by_level().values()) > MAX_WEIGHT:
            raise BadInput(f"level weights {text!r} go over {MAX_WEIGHT}; use smaller numbers")
        return weights

    def by_level(self) -> dict[Level, int]:
        return {Level.HIGH: self.high, Level.MEDIUM: self.medium, Level.LOW: self.low}

    def __str__(self) -> str:
        return f"{self.high}:{self.medium}:{self.low}"


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stream of pushes.

    It sends up to `quota` pushes in its turn. `key` is the submitter's own: a second submit under
    it is the same task. With `ordered`, pushes of one order key go one after another; with `dedupe`
    a recipient gets one push. `retention_s` is how long its lane is kept after its end. `reason`
    says why it is paused, or why it ended. `traceparent` is where its submit is in a trace.
    `total` is None until the submit has closed it; `last_seq` is its last push's then, where its
    seqs have steps. `fingerprint` is a hash of what was submitted, so that the same key with other
    content is refused; `made_of` has short hashes of its parts, by which what differs can be named
    (`producers.task_builder`). Times are Unix milliseconds; 0 means unset. Nothing is sent before
    `not_before_ms`. `quiet` is hours like 22:00-08:00 in which recipients are left alone, `zone`
    (an IANA name) where those are whose push does not tell. `has_later` tells that its later lane
    is open, where pushes wait for their time. `is_fed` tells that its pushes come one by one, until
    its producer closes it. `stalled_at_ms` is when its submit or producer was found to be gone
    before it was complete. `left_with` is how many pushes it had when its producer ended well and
    left it open. `lane_dropped` tells that nothing of it can come off a lane any more. `first_lane`
    is where its submit published all of its pushes, wherever it has moved since. `bundle` is how
    many pushes a message of it has at most: 1 where older processes are to read them; 0 until it is
    added, and when a version before 0.2.0 made it. `sinks` names where its pushes go: first to the
    first; what cannot be delivered there goes on to the next for which it has an address. Without
    any it is the sink `default`. `reached` names those behind the first that pushes have gone on
    to: their lanes are open. `stop_if_dead` is the share of dead pushes that pauses it, as a text
    (`model.stop_rule`), and `stopped` tells that it did: once resumed, the task is not paused for
    that again. Pushes that had ended when the rule was set anew do not count: `stop_since`.
    `zone_column` and `start_column` name the columns that told the zone, and the start, of each
    push of a file: empty when there was none, None when nobody knows. `first_expiry_ms` is the
    expiry of its submit, which its pushes carry, once it had another. `recall_ms` is when what
    waits was let go earlier, until the leader has seen to that. `version` grows with every change.
    `format` is that of the stored task, `unknown` what a newer version has stored with it
    (`model.task_bytes`): never shown.
    """

    id: str
    level: Level
    lane: str
    name: str = ""
    key: str = ""
    fingerprint: str = ""
    app: str = "default"
    quota: int = 1
    state: State = State.SUBMITTED
    total: int | None = None
    last_seq: int = 0
    max_attempts: int = 5
    delivery: DeliveryMode = DeliveryMode.AT_LEAST_ONCE
    on_unknown: OnUnknown = OnUnknown.RESEND
    not_before_ms: int = 0
    quiet: str = ""
    zone: str = ""
    ordered: bool = False
    dedupe: bool = False
    is_fed: bool = False
    has_later: bool = False
    first_lane: str = ""
    bundle: int = 0
    retention_s: float = 0.0
    reason: str = ""
    created_at_ms: int = 0
    expires_at_ms: int = 0
    finished_at_ms: int = 0
    stalled_at_ms: int = 0
    left_with: int | None = None
    lane_dropped: bool = False
    sinks: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    stop_if_dead: str = "off"
    stopped: bool = False
    stop_since: tuple[int, int] = (0, 0)
    zone_column: str | None = None
    start_column: str | None = None
    first_expiry_ms: int | None = None
    recall_ms: int = 0
    version: int = 0
    format: int = 1
    made_of: bytes = b""
    traceparent: str = ""
    unknown: bytes | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="")

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name != "unknown")
        return f"Task({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of its sinks, in the order in which its pushes try them."""
        return self.sinks or (DEFAULT_SINK,)

    def lane_at(self, sink: str) -> str:
        """Return the lane of its pushes at a sink of its chain."""
        return self.lane if sink == self.chain[0] else lane_at(self.id, sink)

    def next_sink(self, sink: str, push: Push) -> str:
        """Return where a push goes on that this sink could not deliver; empty if nowhere."""
        if len(self.sinks) < 2 or sink not in self.sinks:
            return ""
        later = self.sinks[self.sinks.index(sink) + 1 :]
        return next((name for name in later if push.address(name)), "")

    def own_lanes(self) -> list[str]:
        """Return all lanes that only this task has, wherever its pushes may be."""
        lanes = [own_lane(self.id), *(lane_at(self.id, sink) for sink in self.reached)]
        return [name for lane in lanes for name in (lane, later_lane(lane))]

    @property
    def is_half_made(self) -> bool:
        """True when its submit, or the producer that feeds it, has not come to its end."""
        return self.total is None and self.left_with is None and not self.state.is_terminal

    @property
    def highest_seq(self) -> int:
        """The seq of its last push, 0 while that is not known."""
        return self.last_seq or self.total or 0

    @property
    def pooled(self) -> bool:
        """True when its pushes share a lane with those of other low tasks."""
        return is_pool(self.lane)

    def dated(self, push: Push) -> Push:
        """Return a push with the task's expiry of now, unless it has one of its own."""
        if self.first_expiry_ms is None or push.expires_at_ms != self.first_expiry_ms:
            return push
        return replace(push, expires_at_ms=self.expires_at_ms)

    def is_scheduled(self, now_ms: int) -> bool:
        """True when its start is still to come."""
        return self.not_before_ms > now_ms


class Progress(msgspec.Struct, frozen=True):
    """The number of distinct seqs of a task that ended in each way: a redelivery counts once.

    `failed` counts those of the dead whose address is not dead: what may stop a task. An older
    version counts none there.
    """

    task_id: str
    delivered: int = 0
    dead: int = 0
    expired: int = 0
    dropped: int = 0
    failed: int = 0

    @property
    def finished(self) -> int:
        return self.delivered + self.dead + self.expired + self.dropped


class Finished(msgspec.Struct, frozen=True):
    """Seqs of one task that ended in the same way; if not delivered, the class of the reason."""

    task_id: str
    kind: Kind
    seqs: list[int]
    reason: str = ""


class Moved(msgspec.Struct, frozen=True):
    """Seqs of one task that left its first lane and wait on another."""

    task_id: str
    seqs: list[int]


class Span(msgspec.Struct, frozen=True):
    """A question about the seqs from `first` to `last` of one task.

    With `moves` those that left the task's first lane are asked for too.
    """

    task_id: str
    first: int
    last: int
    moves: bool


Edit = Callable[[Task], Task]
"""A change of a task, as a pure function from one value to the next; it may raise."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class SteadyTime:
    """Unix time in ms that goes on evenly though the wall clock is stepped: `tie_ms` is that of 0 s
    on the monotonic clock. Who watches the wall ties it anew once a step has stayed.
    """

    tie_ms = time.time() * 1000 - time.monotonic() * 1000

    @classmethod
    def now_ms(cls) -> int:
        return int(cls.tie_ms + time.monotonic() * 1000)


def start(task: Task) -> Task:
    """Let dispatchers read the task's lane, which is open, and note that its submitter is there."""
    state = State.RUNNING if task.state is State.SUBMITTED else task.state
    started = replace(task, state=state, stalled_at_ms=0, left_with=None)
    return task if task.state.is_terminal or started == task else started


def seal(total: int, last_seq: int = 0) -> Edit:
    """Record that all pushes are on the lane: from now on the task can be done."""

    def edit(task: Task) -> Task:
        if task.total not in (None, total):
            raise InvalidChange(f"task {task.id} is closed with {task.total} pushes, not {total}")
        return replace(task, total=total, last_seq=last_seq)

    return edit
