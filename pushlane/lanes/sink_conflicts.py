"""Finds processes that deliver by one name to different places.

Pushes of a name go to whichever process takes them, so two targets would split a task between them.
Processes of older versions do not say what they deliver to, and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pushlane.model.presence import Process, SinkTarget

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
