"""Checks of pushlane itself: its live processes, its settings against each other, its sinks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pushlane.backends.operations import Live
from pushlane.core.push import FORMAT
from pushlane.core.task import Task
from pushlane.diagnosis.causes import unserved_advice
from pushlane.diagnosis.situation import resting_since, unserved_sinks
from pushlane.model.presence import (
    Process,
    Resting,
    SinkTarget,
    difference,
    split_sinks,
    targets_by_sink,
)
from pushlane.settings import Settings
from pushlane.util.checks import Check, Fact, Remark, Severity
from pushlane.util.errors import DamagedRecord
from pushlane.version import VERSION

AREA = "pushlane"
_SHOWN = 5
_SHOWN_RECORDS = 20


@dataclass(frozen=True)
class Setup:
    """The settings, who is live, and what opening each sink said; empty where it went well.

    `mine` is what sinks of the settings deliver to, where there are live processes to compare it
    with, and `tasks` are the newest that are not finished.
    """

    settings: Settings
    live: Live
    sinks: Mapping[str, str]
    mine: Mapping[str, SinkTarget] = field(default_factory=dict)
    tasks: Fact[list[Task]] = field(default_factory=lambda: Fact([]))


def _check(
    name: str, looks_at: str, why: str
) -> Callable[[Callable[[Setup], Iterator[Remark]]], Check[Setup]]:
    """Make a check of a function that looks at a setup."""
    return lambda look: Check(name, AREA, looks_at, why, look)


@_check(
    "versions",
    "versions of live processes against ours",
    "an upgrade that stands still keeps new forms from being written",
)
def _versions(setup: Setup) -> Iterator[Remark]:
    by_version = defaultdict(list)
    for process in setup.live.processes.get():
        by_version[process.version].append(process)
    others = {version: found for version, found in by_version.items() if version != VERSION}
    if others:
        text = "; ".join(
            f"{version or 'unknown'}: {_names(found)}" for version, found in others.items()
        )
        what = f"live processes have other versions than {VERSION} ({text})"
        yield Remark("warning", what, "end the upgrade: pushlane processes")


@_check(
    "formats",
    "formats that live processes read against those that may be written",
    "a process leaves messages alone that it cannot read: they wait",
)
def _formats(setup: Setup) -> Iterator[Remark]:
    processes, lowest = setup.live.processes.get(), setup.live.min_format.get()
    behind = [process for process in processes if process.format < lowest]
    if behind:
        what = f"lanes may hold format {lowest}, which {_names(behind)} cannot read"
        yield Remark("error", what, "upgrade these processes: pushlane processes")
    elif lowest > FORMAT:
        what = f"lanes may hold format {lowest}, and this version reads up to {FORMAT}"
        yield Remark("error", what, "upgrade pushlane here")
    elif lowest < FORMAT and processes and all(one.format >= FORMAT for one in processes):
        what = f"format {FORMAT} may be written, as all processes read it; {lowest} is"
        yield Remark("note", what, f"pushlane formats --min {FORMAT}")


@_check(
    "records",
    "that each task and each limit that is stored can be read",
    "what cannot be read is never sent, and holds for nobody",
)
def _records(setup: Setup) -> Iterator[Remark]:
    unread, newer = setup.live.unread.get(), setup.live.newer.get()
    for fault in unread[:_SHOWN_RECORDS]:
        is_served = bool(newer) and not isinstance(fault, DamagedRecord)
        severity: Severity = "note" if is_served else "error"
        yield Remark(severity, fault.fault, fault.way_out.partition(": ")[2] or fault.way_out)
    if len(unread) > _SHOWN_RECORDS:
        more = len(unread) - _SHOWN_RECORDS
        yield Remark("error", f"{more:,} more cannot be read", "remove these first")


@_check(
    "identity",
    "that no two live processes have one id, by two looks some seconds apart",
    "their limits and places are counted as one's, and each ends the other's claims",
)
def _identity(setup: Setup) -> Iterator[Remark]:
    earlier = {process.id: process for process in setup.live.processes.get()}
    for process in setup.live.later.get():
        other = earlier.get(process.id)
        if other is not None and _body(other) != _body(process):
            yield Remark(
                "error",
                f"two processes call themselves {process.id} (pids {other.pid} and {process.pid})",
                "restart one of them; never start one from a copy of another's memory",
            )


def _body(process: Process) -> tuple[int, int]:
    return process.pid, process.started_at_ms


def _names(processes: list[Process]) -> str:
    shown = ", ".join(f"{one.id} (pid {one.pid})" for one in processes[:_SHOWN])
    more = len(processes) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


@_check(
    "claims",
    "ledger_window_s against sink_timeout_s and claim_timeout_s",
    "a claim that is forgotten while it stands lets a push go twice",
)
def _claims(setup: Setup) -> Iterator[Remark]:
    for name in setup.settings.served:
        settings = setup.settings.of_sink(name)
        held_s = settings.sink_timeout_s + settings.claim_timeout_s
        if settings.ledger_window_s <= held_s:
            yield Remark(
                "error",
                f"ledger_window_s is {settings.ledger_window_s:g}, and a claim at sink {name} may "
                f"stand for {held_s:g} s",
                f"set ledger_window_s over {held_s:g}",
            )


@_check(
    "drain",
    "drain_timeout_s against sink_timeout_s",
    "a stop cuts deliveries off, which go again afterwards",
)
def _drain(setup: Setup) -> Iterator[Remark]:
    for name in setup.settings.served:
        settings = setup.settings.of_sink(name)
        if settings.drain_timeout_s < settings.sink_timeout_s:
            yield Remark(
                "warning",
                f"drain_timeout_s is {settings.drain_timeout_s:g}, and a delivery at sink {name} "
                f"may take {settings.sink_timeout_s:g} s",
                f"set drain_timeout_s to {settings.sink_timeout_s:g} or more",
            )


@_check(
    "retries", "retry_first_s against retry_longest_s", "the first wait is cut to the longest one"
)
def _retries(setup: Setup) -> Iterator[Remark]:
    settings = setup.settings
    if settings.retry_first_s > settings.retry_longest_s:
        yield Remark(
            "warning",
            f"retry_first_s is {settings.retry_first_s:g}, over retry_longest_s "
            f"{settings.retry_longest_s:g}",
            f"set retry_longest_s to {settings.retry_first_s:g} or more",
        )


@_check(
    "sinks",
    "that each sink of the settings can be opened; nothing is sent",
    "a sink without its credentials keeps a dispatcher from starting",
)
def _sinks(setup: Setup) -> Iterator[Remark]:
    for name, problem in setup.sinks.items():
        if problem:
            yield Remark("error", problem, f"pushlane sinks test {name}")


@_check("sink-files", "that no others can read files of sinks' options", "they hold credentials")
def _files(setup: Setup) -> Iterator[Remark]:
    for name, sink in setup.settings.sinks.items():
        for said in sink.files_open_to_others():
            what, _, mend = said.partition("; fix it with ")
            yield Remark("warning", f"sink {name}: {what}", mend)


@_check(
    "null-sink",
    "that the live processes' sinks deliver; without any, that there is a sink",
    "pushes are counted, and go nowhere",
)
def _throws_away(setup: Setup) -> Iterator[Remark]:
    processes = setup.live.processes.get_or([])
    for name, targets in targets_by_sink(processes).items():
        for one in targets:
            if not one.target.delivers:
                who = _names(one.processes)
                what = f"sink {name} is {one.target}, which delivers nothing, in {who}"
                yield Remark("note", what, "start it with a sink that delivers (docs/sinks.md)")
    if not processes and not setup.settings.sinks and setup.settings.sink == "null":
        what = "these settings have no sink but `null`, which throws pushes away"
        yield Remark("note", what, "set sink, or a table [sinks.NAME] (docs/sinks.md)")


@_check(
    "sink-targets",
    "that all live processes deliver a sink's pushes to the same place",
    "each takes part of its pushes",
)
def _split(setup: Setup) -> Iterator[Remark]:
    processes = setup.live.processes.get()
    live = targets_by_sink(processes)
    for name, what in split_sinks(processes).items():
        wastes = len({one.target.delivers for one in live[name]}) > 1
        mend = "stop all but those that are meant: pushlane processes"
        yield Remark("error" if wastes else "warning", what, mend)


@_check(
    "shell-sinks",
    "what the sinks of these settings lead to against what live processes deliver to",
    "`sinks test` and `dispatch` from this shell go elsewhere than the live ones",
)
def _elsewhere(setup: Setup) -> Iterator[Remark]:
    live = targets_by_sink(setup.live.processes.get())
    for name, targets in live.items():
        if what := difference(name, setup.mine.get(name), targets):
            mend = "give this shell the settings of the live processes (--config, PUSHLANE_*)"
            yield Remark("note", what, mend)


@_check(
    "resting-sinks",
    "that no sink rests in all processes that serve it",
    "its pushes wait until it answers again",
)
def _resting(setup: Setup) -> Iterator[Remark]:
    for name, resting in _shut_sinks(setup.live.processes.get()).items():
        what = f"sink {name} rests: {resting_since(resting)}"
        yield Remark("error", what, f"pushlane sinks test {name} --to ADDRESS")


def _shut_sinks(processes: list[Process]) -> dict[str, Resting]:
    """Return the sinks that rest in all processes that serve them, with the earliest reason."""
    stands = defaultdict(list)
    for process in processes:
        for name in process.sink_names:
            stands[name].append(process.at(name).resting)
    return {
        name: min((one for one in each if one is not None), key=lambda one: one.since_ms)
        for name, each in stands.items()
        if all(one is not None and one.is_shut for one in each)
    }


@_check(
    "unserved-sinks",
    "that tasks that are not finished go to sinks that a live process serves",
    "their pushes wait until one does",
)
def _unserved(setup: Setup) -> Iterator[Remark]:
    processes = setup.live.processes.get()
    waiting: dict[str, list[Task]] = defaultdict(list)
    for task in setup.tasks.get():
        for sink in unserved_sinks(task, processes):
            waiting[sink].append(task)
    for sink, tasks in waiting.items():
        count = f"{len(tasks):,} tasks wait" if len(tasks) > 1 else "1 task waits"
        why, do = unserved_advice(sink, setup.settings)
        what = f"{count} for sink {sink}{why}, such as {tasks[0].id}"
        yield Remark("warning", what, do)


SETTINGS: Check[str] = Check(
    "settings",
    AREA,
    "that the settings can be used",
    "invalid settings stop every command",
    lambda problem: [Remark("error", problem, "pushlane config")] if problem else [],
)

_OF_SINKS = (_sinks, _files, _throws_away, _split, _elsewhere, _resting, _unserved)
CHECKS = (_versions, _formats, _records, _identity, _claims, _drain, _retries, *_OF_SINKS)
