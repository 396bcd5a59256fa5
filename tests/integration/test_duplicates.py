"""Dedupe and collapse with real dispatchers, one of them killed: by the receiving end's own log."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.processes import Pushlane, Received, Running

SLOTS = 20
PUSHES = 2_400
RECIPIENTS = 400


def rows(pushlane: Pushlane, count: int) -> Path:
    """A file whose row n is for recipient n modulo RECIPIENTS."""
    path = pushlane.folder / f"repeated-{count}.csv"
    lines = "".join(f"device-{n % RECIPIENTS}\n" for n in range(1, count + 1))
    path.write_text(f"recipient\n{lines}")
    return path


def start(pushlane: Pushlane, receiver: Received, *more: str) -> Running:
    return pushlane.dispatch("--slots", str(SLOTS), "--sink", receiver.sink, *more)


def by_recipient(receiver: Received) -> dict[int, list[tuple[str, int]]]:
    """What each got, in order."""
    receiver.read()
    got: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for arrival in receiver.arrivals:
        got[arrival.seq % RECIPIENTS].append((arrival.task, arrival.seq))
    return got


def test_each_recipient_of_a_deduped_task_gets_one_push_over_a_kill(pushlane, receiver) -> None:
    task = pushlane(
        "submit", rows(pushlane, PUSHES), "--level", "high", "--silent", "--dedupe", "recipient"
    )
    survivor, victim = start(pushlane, receiver, "--drain"), start(pushlane, receiver)
    survivor.until("started")
    victim.until("started")
    receiver.until(RECIPIENTS // 3, survivor)
    victim.kill()

    assert survivor.wait() == 0

    got = by_recipient(receiver)
    assert len(got) == RECIPIENTS
    assert all(len(set(pushes)) == 1 for pushes in got.values())
    shown = pushlane.task(task)
    assert (shown["delivered"], shown["dropped"]) == (RECIPIENTS, PUSHES - RECIPIENTS)


def test_no_recipient_gets_an_older_push_after_a_newer_one(pushlane, receiver) -> None:
    def submit(count: int) -> str:
        return pushlane(
            "submit", rows(pushlane, count), "--level", "high", "--silent", "--collapse", "score"
        )

    older = submit(RECIPIENTS)
    crew = [start(pushlane, receiver), start(pushlane, receiver)]
    for one in crew:
        one.until("started")
    newer = submit(RECIPIENTS)
    for one in crew:
        one.stop()

    pushlane.drain(receiver.sink)

    got = by_recipient(receiver)
    assert len(got) == RECIPIENTS
    for pushes in got.values():
        tasks = [task for task, _ in pushes]
        assert tasks in ([newer], [older, newer])


def test_all_that_waits_is_replaced_by_what_is_newer(pushlane, receiver) -> None:
    older = pushlane(
        "submit", rows(pushlane, RECIPIENTS), "--level", "high", "--silent", "--collapse", "score"
    )
    newer = pushlane(
        "submit", rows(pushlane, PUSHES), "--level", "low", "--silent", "--collapse", "score"
    )

    pushlane.drain(receiver.sink)

    assert receiver.of(older) == 0
    got = by_recipient(receiver)
    last = range(PUSHES - RECIPIENTS + 1, PUSHES + 1)
    assert sorted(got.values()) == sorted([(newer, seq)] for seq in last)
