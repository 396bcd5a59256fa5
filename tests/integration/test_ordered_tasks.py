"""An ordered task with real dispatchers that are killed: by the receiving end's own log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.processes import Pushlane, Received, Running, each_once

SLOTS = 20
PUSHES = 3_000
KEYS = 60


def rows(pushlane: Pushlane) -> Path:
    """A file whose row n is of key n modulo KEYS."""
    path = pushlane.folder / "ordered.csv"
    lines = "".join(f"device-{n},user {n % KEYS}\n" for n in range(1, PUSHES + 1))
    path.write_text(f"recipient,user\n{lines}")
    return path


def submit(pushlane: Pushlane, level: str) -> str:
    return pushlane(
        "submit", rows(pushlane), "--level", level, "--title", "Hi", "--ordered-by", "user"
    )


def start(pushlane: Pushlane, receiver: Received, *more: str) -> Running:
    return pushlane.dispatch("--slots", str(SLOTS), "--sink", receiver.sink, *more)


def overtaken(seqs: Iterable[int]) -> list[int]:
    """Seqs that arrived after a later one of their key."""
    latest: dict[int, int] = {}
    late = []
    for seq in seqs:
        key = seq % KEYS
        if seq < latest.get(key, 0):
            late.append(seq)
        latest[key] = max(seq, latest.get(key, 0))
    return late


def arrived(receiver: Received) -> list[int]:
    receiver.read()
    return [arrival.seq for arrival in receiver.arrivals]


@pytest.mark.parametrize("level", ["high", "low"])
def test_each_key_is_in_order_over_two_processes_of_which_one_is_killed(
    pushlane, receiver, level
) -> None:
    task = submit(pushlane, level)
    survivor, victim = start(pushlane, receiver, "--drain"), start(pushlane, receiver)
    survivor.until("started")
    victim.until("started")
    receiver.until(PUSHES // 3, survivor)
    victim.kill()

    assert survivor.wait() == 0

    assert overtaken(arrived(receiver)) == []
    assert set(receiver.pushes) == set(each_once({task: PUSHES}))
    assert receiver.duplicates <= KEYS  # the one of each key that was not durable yet


def test_each_key_is_in_order_over_kills_in_a_row(pushlane, receiver) -> None:
    task = submit(pushlane, "high")
    for part in range(1, 6):
        crew = [start(pushlane, receiver), start(pushlane, receiver)]
        receiver.until(PUSHES * part // 6, *crew)
        for one in crew:
            one.kill()

    pushlane.drain(receiver.sink)

    assert overtaken(arrived(receiver)) == []
    assert set(receiver.pushes) == set(each_once({task: PUSHES}))
