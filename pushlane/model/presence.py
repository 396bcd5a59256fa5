"""Describes a live process in its own words: its kind, its sinks and lanes, what rests or is slow.

A record stays within a few KiB: lists of lanes have a bound. Nothing personal: a process is told by
a random id and its pid. Fields may be added; fields that a newer version has added are not shown
here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from pushlane.core.names import DEFAULT_SINK
from pushlane.core.push import FORMAT
from pushlane.util.checks import version_of
from pushlane.version import VERSION

log = logging.getLogger("pushlane.presence")

_SHUT = ("open", "probing")


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
    def is_shut(self) -> bool:
        """True when it gets nothing but a probe now and then, False when it gets fewer pushes."""
        return any(f"({state})" in self.what for state in _SHUT)


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
    their key), `format` (a message that only a newer version reads), `doubt` (a push of a task that
    the registry does not have now), or a word of a newer version.
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
    by level `sent_per_s`, and `apps_per_s` of the apps that sent most.
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


_decoder = msgspec.json.Decoder(Process)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


class _Seen(msgspec.Struct, frozen=True):
    """The fields by which a process is named, and its version told."""

    id: str = "?"
    pid: int = 0
    version: str = ""
    format: int = 0


_seen_decoder = msgspec.json.Decoder(_Seen)


def newer_than_ours(bodies: Iterable[bytes]) -> list[str]:
    """Name the processes of a newer version, and those that cannot be read, which must be one."""
    return [text for body in bodies if (text := _newer_text(body))]


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
            log.warning(
                "a process of a newer version is there, of which this one cannot read more",
                extra={"action": "format_unknown"},
            )
    return sorted(processes, key=lambda process: (process.started_at_ms, process.id))
