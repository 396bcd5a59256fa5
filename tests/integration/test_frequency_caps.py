"""Frequency caps with real dispatchers, one of them killed: by the receiving end's own log."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from pushlane.backends.backend import connect
from pushlane.core.turns import EVERY_APP
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.settings import load
from tests.processes import Pushlane

PUSHES = 2_400
RECIPIENTS = 400
MOST = 2
SLOTS = "20"


def cap(pushlane: Pushlane) -> None:
    """At most two pushes a day to a recipient, from any app."""

    async def change() -> None:
        async with connect(load(dict(pushlane.settings))) as backend:
            limit = Limit(recipient_a_day={"all": MOST})
            await change_limit(backend.documents, Subject("app", EVERY_APP), lambda _: limit)

    asyncio.run(change())


def test_each_recipient_gets_as_many_as_the_cap_says_over_a_kill(pushlane, receiver) -> None:
    """What was counted and then killed is sent again without being counted again."""
    path = pushlane.folder / "rows.csv"
    lines = "".join(f"device-{n % RECIPIENTS}\n" for n in range(1, PUSHES + 1))
    path.write_text(f"recipient\n{lines}")
    cap(pushlane)
    task = pushlane("submit", path, "--level", "high", "--title", "Hi")
    crew = [
        pushlane.dispatch("--slots", SLOTS, "--sink", receiver.sink, *more)
        for more in (("--drain",), ())
    ]
    for one in crew:
        one.until("started")
    survivor, victim = crew
    receiver.until(RECIPIENTS // 3, survivor)
    victim.kill()

    assert survivor.wait() == 0

    receiver.read()
    got: dict[int, set[int]] = defaultdict(set)
    for arrival in receiver.arrivals:
        got[arrival.seq % RECIPIENTS].add(arrival.seq)
    assert {len(seqs) for seqs in got.values()} == {MOST}
    assert len(got) == RECIPIENTS
    shown = pushlane.task(task)
    assert (shown["delivered"], shown["dropped"]) == (MOST * RECIPIENTS, PUSHES - MOST * RECIPIENTS)
