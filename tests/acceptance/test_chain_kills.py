"""kill -9 of those who serve a chain of sinks: nothing is lost, and each push counts once."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.processes import NOT_COUNTED_S, Pushlane, Received, Running, each_once

KILLS = 4  # of each
SLOTS = 20
ANSWER_MS = 20  # so slow that something is left for every kill
NOT_NOTED_S = NOT_COUNTED_S + 0.2
"""For how long a push that goes on may not be noted yet: a broker takes its time for a publish."""
TOTALS = {"high": 6_000, "medium": 4_000, "low": 4_000}
CHAIN = ("fcm", "sms")


@pytest.fixture
def chance() -> random.Random:
    """Its seed is shown when the test fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def receivers(webhook: Callable[..., Received]) -> dict[str, Received]:
    """At the first one all addresses are dead; the second delivers."""
    return {"fcm": webhook(ANSWER_MS, status=410), "sms": webhook(ANSWER_MS)}


@pytest.fixture
def named(pushlane: Pushlane, receivers: dict[str, Received]) -> Iterator[Pushlane]:
    """Commands that know both sinks by name."""
    sinks = {
        name: {"kind": "webhook", "slots": SLOTS, "url": receiver.sink.removeprefix("webhook:")}
        for name, receiver in receivers.items()
    }
    commands = Pushlane(pushlane.folder, {**pushlane.settings, "sinks": json.dumps(sinks)})
    yield commands
    commands.end_all()


@pytest.mark.timeout(900)
def test_killed_processes_of_a_chain_lose_nothing_and_count_each_push_once(
    named: Pushlane, receivers: dict[str, Received], chance: random.Random
) -> None:
    totals = {
        named.submit(level, count, "--sink", ",".join(CHAIN)): count
        for level, count in TOTALS.items()
    }
    serving = {name: served(named, name) for name in CHAIN}
    for victim in CHAIN * KILLS:
        receiver = receivers[victim]
        more = min(receiver.count() + 1 + chance.randrange(800), sum(TOTALS.values()))
        receiver.until(more, *serving.values())
        serving[victim].kill()
        serving[victim] = served(named, victim)
    for process in serving.values():
        assert process.stop() == 0, process.text

    drain = named.dispatch("--drain")

    assert drain.wait() == 0, drain.text
    fcm, sms = receivers.values()
    assert set(sms.pushes) == set(fcm.pushes) == set(each_once(totals))
    ends = {
        task["id"]: (task["state"], task["delivered"], task["dead"], task["finished"])
        for task in named.json("tasks", "--all")
    }
    assert ends == {task: ("done", total, 0, total) for task, total in totals.items()}
    at_fcm = KILLS * (SLOTS + fcm.busiest(NOT_NOTED_S))
    at_sms = KILLS * (SLOTS + sms.busiest(NOT_COUNTED_S))
    assert fcm.duplicates <= at_fcm
    assert sms.duplicates <= at_fcm + at_sms, "what goes on twice may arrive twice"


def served(commands: Pushlane, name: str) -> Running:
    """A process that serves this sink alone, once it has started."""
    process = commands.dispatch("--serve", name)
    process.until("started")
    return process
