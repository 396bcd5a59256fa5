"""Describes a live process in its own words, and finds those that contradict each other.

A record stays within a few KiB: lists of lanes have a bound. Nothing personal: a process is told by
a random id and its pid. Fields that a newer version has added are not shown here.

Pushes of a name go to whichever process takes them, so two targets would split a task between them.
Processes of older versions do not say what they deliver to, and are not compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pushlane.core.names import DEFAULT_SINK
from pushlane.core.push import FORMAT
from pushlane.util.checks import version_of
from pushlane.version import VERSION

log = logging.getLogger("pushlane.presence")

MOST_TASKS = 50
"""So many tasks of a sink a process says the rates of: those of which most ended."""

MOST_LANES = 20
"""So many lanes of a sink a process says the slots of: those that hold most."""


_STANDS = {
    "throttled": "gets fewer pushes",
    "open": "rests",
    "probing": "rests, and is tried",
    "rising": "gets more pushes again",
}


class Resting(msgspec.Struct, frozen=True):
    """A sink or host that gets no pushes for now. Its times are Unix ms.

    `is_unproven`: its target has never delivered, and gives final answers to all.
    """

    what: str
    since_ms: int
    why: str
    again_at_ms: int
    is_unproven: bool = False

    @property
    def stands(self) -> str:
        """What it is and how it stands, in words: `sink sms rests`."""
        name, _, state = self.what.rpartition(" (")
        words = _STANDS.get(state.removesuffix(")"))
        return f"{name} {words}" if words else self.what

    def stands_at(self, target: SinkTarget | None) -> str:
        """Return the same with what it delivers to: `sink sms (webhook at 10.0.0.7:9000) rests`."""
        words = self.stands.split(" ", 2)
        if target is None or not target.host or words[0] != "sink" or len(words) < 3:
            return self.stands
        return f"sink {words[1]} ({target}) {words[2]}"

    @property
    def is_shut(self) -> bool:
        """True when it gets nothing but a probe now and then, False when it gets fewer pushes."""
        return "(open)" in self.what or "(probing)" in self.what


def continued(reason: str, more: str, by: str) -> str:
    """Join a reason and what is said beside it; one that is a question ends its sentence."""
    if reason.endswith("?"):
        return f"{reason} {more[0].upper()}{more[1:]}"
    return f"{reason}{by}{more}"


class SlowLane(msgspec.Struct, frozen=True):
    """A lane whose deliveries hold their slots `times` as long as others', since then (Unix ms)."""

    lane: str
    times: float
    since_ms: int


class LaneWait(msgspec.Struct, frozen=True):
    """A lane that waits at a sink for something else than its turn.

    `why` is `budget` (a limit has no room now), `crowded` (outcomes that are not durable yet),
    `delay-full` (too many of its pushes wait for their time), `keys` (pushes wait for others of
    their key), `refused` (for another try), `look-up` (for their task to be looked up), `format` (a
    message that only a newer version reads), `doubt` (a push of a task that the registry does not
    have now), or a word of a newer version.
    """

    lane: str
    sink: str
    why: str


class SinkDrain(msgspec.Struct, frozen=True, kw_only=True):
    """How long a sink takes for its `backlog` of pushes that may go, at `rate_per_s`."""

    seconds: float
    backlog: int
    rate_per_s: float


class DrainFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What an autoscaler goes by, as the leader has found it at `at_ms` (Unix ms).

    `seconds` are the largest of all sinks, backlog and rate of all together.
    """

    seconds: float
    target_s: float
    backlog: int
    rate_per_s: float
    by_sink: dict[str, SinkDrain]
    at_ms: int


class SinkTarget(msgspec.Struct, frozen=True):
    """What a sink delivers to, as others may know it: the same `hash` is the same place.

    `host` is empty where the kind says it all. `delivers` is False of a sink that throws pushes
    away, or only writes or checks them. How it is made is in `model.targets`.
    """

    kind: str
    host: str = ""
    hash: str = ""
    delivers: bool = True

    def __str__(self) -> str:
        """Return it for people: `webhook at 127.0.0.1:9000`."""
        return f"{self.kind} at {self.host}" if self.host else self.kind


class ServedSink(msgspec.Struct, frozen=True, kw_only=True):
    """How one sink of a process stands.

    `slots` are those that may be used now. `delivered_per_s` is by level and of the last seconds,
    and so is `delivery_s`, the mean time that a delivery holds its slot; without any, it is that
    since the start, 0 when none was made. `lanes` counts by level the lanes that are read.
    Of the last minute, or since its start, are `ended_per_s` (in whatever way), and what it sent:
    by level `sent_per_s`, and `apps_per_s` of the apps that sent most. `tasks_per_s` is what ended
    in the last seconds, by id of the `MOST_TASKS` tasks of which most did, and `lane_slots` the
    slots held by the `MOST_LANES` lanes that hold most; None of a process that does not say.
    `resting` is why it gets fewer pushes than there are, if it does. `rate_per_s` (in cost, of
    which a push has `cost`) and `most_in_flight` limit the sink over all processes, as far as the
    process was told. `target` is what it delivers to, None of a process that does not say.
    `in_doubt` counts tasks that pushes named just now and the registry did not have.
    """

    name: str
    target: SinkTarget | None = None
    slots: int = 0
    in_flight: int = 0
    delivered_per_s: dict[str, float] = {}
    delivery_s: float = 0.0
    ended_per_s: float = 0.0
    sent_per_s: dict[str, float] = {}
    apps_per_s: dict[str, float] = {}
    tasks_per_s: dict[str, float] | None = None
    lane_slots: dict[str, int] | None = None
    lanes: dict[str, int] = {}
    resting: Resting | None = None
    rate_per_s: float | None = None
    most_in_flight: int | None = None
    cost: float = 1.0
    in_doubt: int = 0


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One live process. `format` is the highest format of messages that it reads.

    `lanes` is how many lanes it reads, `serves` the names of its sinks (`sinks` too, where older
    processes have the kind of `default`); `served` says how each of them stands. `slow`
    are the slowest of its lanes that count as slow, `waiting` some that wait for something else
    than their turn. `drain` is what only the one that leads says of all. One that `is_starting`
    delivers nothing yet, and may still be refused.
    """

    id: str
    kind: str
    pid: int
    version: str
    format: int = 1
    lanes: int = 0
    sinks: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    started_at_ms: int = 0
    resting: tuple[Resting, ...] = ()
    slow: tuple[SlowLane, ...] = ()
    served: tuple[ServedSink, ...] = ()
    waiting: tuple[LaneWait, ...] = ()
    drain: DrainFigures | None = None
    is_starting: bool = False

    @property
    def sink_names(self) -> tuple[str, ...]:
        """The names that tasks know its sinks by: an old process, which knew none, has one sink."""
        return self.serves or (DEFAULT_SINK,)

    def at(self, sink: str) -> ServedSink:
        """Return how a sink of it stands; of an old process little is known."""
        known = (one for one in self.served if one.name == sink)
        return next(known, ServedSink(name=sink))


class _Seen(msgspec.Struct, frozen=True):
    """The fields by which a process is named, and its version told."""

    id: str = "?"
    pid: int = 0
    version: str = ""
    format: int = 0


_decoder = msgspec.json.Decoder(Process)
_seen_decoder = msgspec.json.Decoder(_Seen)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


def newer_than_ours(bodies: Iterable[bytes]) -> list[str]:
    """Name the processes of a newer version, and those that cannot be read, which must be one."""
    return list(filter(None, map(_newer_text, bodies)))


def _newer_text(body: bytes) -> str:
    try:
        seen = _seen_decoder.decode(body)
    except _UNREADABLE:
        return "one that this version cannot read"
    is_newer = seen.format > FORMAT or version_of(seen.version) > version_of(VERSION)
    try:
        _decoder.decode(body)
    except _UNREADABLE:
        is_newer = True
    return f"{seen.id} (pid {seen.pid}, version {seen.version})" if is_newer else ""


def encode(process: Process) -> bytes:
    return msgspec.json.encode(process)


def decode_all(bodies: Iterable[bytes]) -> list[Process]:
    """Return the processes that can be read, oldest first."""
    processes: list[Process] = []
    for body in bodies:
        try:
            processes.append(_decoder.decode(body))
        except _UNREADABLE:
            told = "a process of a newer version runs, and this one cannot read what it reports"
            log.warning(told, extra={"action": "format_unknown"})
    return sorted(processes, key=lambda process: (process.started_at_ms, process.id))


_OTHER = {
    "webhook": "URL",
    "http": "URL",
    "gorush": "URL, platform or topic",
    "fcm": "project or mode",
    "apns": "topic",
    "webpush": "key",
    "processor": "function",
    "on": "module",
    "log": "file",
}
_MOST_NAMED = 5


class Conflict(NamedTuple):
    """Another process that serves a sink's name with another target."""

    name: str
    mine: SinkTarget
    theirs: SinkTarget
    process: Process

    @property
    def is_waste(self) -> bool:
        """True when this one would take pushes from one that delivers, and deliver none."""
        return self.theirs.delivers and not self.mine.delivers

    @property
    def their_text(self) -> str:
        """Their target for people, told apart from ours."""
        return told_apart([self.mine, self.theirs])[1]


def conflicts_of(process: Process, others: Iterable[Process]) -> list[Conflict]:
    """Return the conflicts of a process with these; itself is not one of them."""
    return [
        Conflict(served.name, served.target, their.target, other)
        for other in others
        if other.id != process.id
        for their in other.served
        if their.target is not None
        for served in process.served
        if served.name == their.name
        and served.target is not None
        and served.target.hash != their.target.hash
    ]


def is_before(one: Process, other: Process) -> bool:
    """Tell which of two processes comes first, the same for whoever asks."""
    return (one.started_at_ms, one.id) < (other.started_at_ms, other.id)


class LiveTarget(NamedTuple):
    """A target of a name, and the processes that deliver to it."""

    target: SinkTarget
    processes: list[Process]


def targets_by_sink(processes: Iterable[Process]) -> dict[str, list[LiveTarget]]:
    """Return by name the targets that live processes deliver to; not those that still start."""
    found: dict[str, dict[str, LiveTarget]] = {}
    for process in processes:
        for served in process.served if not process.is_starting else ():
            if served.target is not None:
                of_name = found.setdefault(served.name, {})
                one = of_name.setdefault(served.target.hash, LiveTarget(served.target, []))
                one.processes.append(process)
    return {name: list(targets.values()) for name, targets in found.items()}


def split_sinks(processes: Iterable[Process]) -> dict[str, str]:
    """Return a sentence for each name that is delivered to more than one target now."""
    return {
        name: f"sink {name} is delivered to {len(targets)} different targets: "
        + "; ".join(live_texts(targets))
        for name, targets in targets_by_sink(processes).items()
        if len(targets) > 1
    }


def live_texts(targets: Sequence[LiveTarget]) -> list[str]:
    """Return a text for each target: what it is, and by which processes."""
    texts = told_apart([each.target for each in targets])
    return [
        f"{text} by {process_names(one.processes)}"
        for text, one in zip(texts, targets, strict=True)
    ]


def difference(name: str, mine: SinkTarget | None, live: Sequence[LiveTarget]) -> str | None:
    """Say that `mine` is none of the live targets of a sink; None if it is, or nobody can tell."""
    if not live or mine is None or any(one.target.hash == mine.hash for one in live):
        return None
    mine_text, *texts = told_apart([mine, *(one.target for one in live)])
    live_text = " and ".join(
        f"{text} by {process_names(one.processes)}" for text, one in zip(texts, live, strict=True)
    )
    return (
        f"sink {name}: this shell's settings lead to {mine_text}, and live processes deliver to "
        f"{live_text}"
    )


def told_apart(targets: Sequence[SinkTarget]) -> list[str]:
    """Return the targets for people; of those that look the same the later ones say so."""
    texts = list(map(str, targets))
    return [
        f"{text} (another {_OTHER.get(target.kind, 'class')})" if text in texts[:place] else text
        for place, (text, target) in enumerate(zip(texts, targets, strict=True))
    ]


def process_names(processes: Sequence[Process]) -> str:
    """Return the ids and pids of processes; of many the first few."""
    shown = ", ".join(f"{one.id} (pid {one.pid})" for one in processes[:_MOST_NAMED])
    more = len(processes) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
