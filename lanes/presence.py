"""Describes a live process in its own words: its kind, its lanes, and what rests or is slow.

Nothing personal: a process is told by a random id and its pid. Fields may be added; fields that a
newer version has added are not shown here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

log = logging.getLogger("pushlane.presence")


class Resting(msgspec.Struct, frozen=True):
    """A sink or host that gets no pushes for now. Its times are Unix ms."""

    what: str
    since_ms: int
    why: str
    again_at_ms: int


class SlowLane(msgspec.Struct, frozen=True):
    """A lane whose deliveries hold their slots `times` as long as others', since then (Unix ms)."""

    lane: str
    times: float
    since_ms: int


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One live process. `format` is the highest format of messages that it reads.

    `lanes` is how many lanes it reads, `sinks` the names of its sinks, with `default` by its kind,
    and `serves` the names that tasks know them by, `slow` the slowest of its
    lanes that count as slow.
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


_decoder = msgspec.json.Decoder(Process)


def encode(process: Process) -> bytes:
    return msgspec.json.encode(process)


def decode_all(bodies: Iterable[bytes]) -> list[Process]:
    """Return the processes that can be read, oldest first."""
    processes: list[Process] = []
    for body in bodies:
        try:
            processes.append(_decoder.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.warning(
                "a process of a newer version is there, of which this one cannot read more",
                extra={"action": "format_unknown"},
            )
    return sorted(processes, key=lambda process: (process.started_at_ms, process.id))
