"""Plays the workload on one system: the backlog, the start, the late task, the new weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import say
from bench.peers.peer import Peer, Program, Reweigh, running
from bench.peers.workload import (
    AFTER_CHANGE_S,
    CHANGE_AT_S,
    END_AT_S,
    LATE,
    LATE_AT_S,
    NEW_WEIGHTS,
    Times,
    backlog,
)
from dev.receiver import Follower
from pushlane.core.errors import Unreachable

_START_DEADLINE_S = 60.0
_LOOK_EVERY_S = 0.02


def play(peer: Peer, log: Follower, said: Path, late_limit_s: float) -> Times:
    """Run it to its end; `log` has all arrivals then.

    The late task is waited for until `late_limit_s` after the first arrival, and the weights change
    only then, or at their time.

    Raises:
        Unreachable: one of its programs ended; tells what it said.
    """
    with running(peer.feed, peer, said, answers=True) as feeder:
        began = time.monotonic()
        for order in backlog():
            feeder.carry_out(order.line())
        say(f"  its backlog is written, {time.monotonic() - began:.1f} s")
        with running(peer.work, peer, said, answers=False) as worker:
            times = _act(peer, feeder, worker, log, late_limit_s)
    log.read()
    return times


def _act(peer: Peer, feeder: Program, worker: Program, log: Follower, late_limit_s: float) -> Times:
    started_at = _first_arrival(worker, log)
    _wait(worker, lambda: time.time() >= started_at + LATE_AT_S)
    late_at = time.time()
    feeder.carry_out(LATE.line())
    _wait(worker, lambda: time.time() >= started_at + CHANGE_AT_S)
    _wait(worker, lambda: _is_complete(log) or time.time() >= started_at + late_limit_s)
    changed_at = None
    if peer.reweigh is not Reweigh.NOTHING:
        changed_at = time.time()
        _reweigh(peer, feeder, worker)
    ended_at = max((changed_at or 0.0) + AFTER_CHANGE_S, started_at + END_AT_S)
    _wait(worker, lambda: time.time() >= ended_at)
    return Times(started_at, late_at, changed_at, ended_at)


def _reweigh(peer: Peer, feeder: Program, worker: Program) -> None:
    line = f"weights {NEW_WEIGHTS}"
    if peer.reweigh is Reweigh.FEEDER:
        feeder.carry_out(line)
    elif peer.reweigh is Reweigh.WORKER:
        worker.tell(line)
    elif peer.reweigh is Reweigh.RELOAD:
        assert peer.weights_file is not None
        peer.weights_file.write_text(NEW_WEIGHTS)
        worker.hang_up()


def _first_arrival(worker: Program, log: Follower) -> float:
    deadline = time.monotonic() + _START_DEADLINE_S
    while not log.read():
        if time.monotonic() > deadline:
            raise Unreachable(f"nothing arrived within {_START_DEADLINE_S:g} s of the start")
        _look(worker)
    return log.arrivals[0].at_s


def _is_complete(log: Follower) -> bool:
    log.read()
    return log.counts[LATE.task] >= LATE.pushes


def _wait(worker: Program, until: Callable[[], bool]) -> None:
    while not until():
        _look(worker)


def _look(worker: Program) -> None:
    if worker.has_ended():
        raise worker.died()
    time.sleep(_LOOK_EVERY_S)
