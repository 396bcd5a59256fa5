"""Kills, stops and outages on the way to providers, counted by what reached their emulators."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import NOT_COUNTED_S, ROOT, Pushlane, Received, each_once, until

KILLS = 3
SLOTS = 20
LATENCY_MS = 20  # so slow that something is left for every kill
TOTAL = 1_500
SUBSCRIPTIONS = 50


class Provider:
    """An emulator as a process, with the settings of a sink that may use it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        log = folder / f"{kind}.jsonl"
        self.received = Received(log, kind)
        more = ("--subscriptions", str(SUBSCRIPTIONS)) if kind == "webpush" else ()
        given = ("--keys", str(folder), "--log", str(log), "--latency-ms", str(LATENCY_MS), *more)
        command = [sys.executable, "-m", f"tests.emulators.{kind}", *given]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def settings(self) -> dict[str, Any]:
        own = {
            "fcm": {
                "credentials_file": str(self.folder / "service-account.json"),
                "endpoint": self.url,
            },
            "apns": {
                "key_file": str(self.folder / "AuthKey_ABC123DEFG.p8"),
                "key_id": "ABC123DEFG",
                "team_id": "DEF123GHIJ",
                "topic": "com.example.shop",
                "endpoint": self.url,
            },
            "webpush": {
                "vapid_key_file": str(self.folder / "vapid.pem"),
                "subject": "mailto:push@example.com",
                "hosts": ["127.0.0.1"],
                "allow": ["127.0.0.1"],
                "only_http2": True,
            },
        }[self.kind]
        return {"kind": self.kind, "slots": SLOTS, **own}

    def address(self, number: int) -> str:
        """An address that it knows."""
        if self.kind == "webpush":
            rows = (self.folder / "subscriptions.jsonl").read_text().splitlines()
            return json.dumps(json.loads(rows[number % len(rows)])["subscription"])
        return f"{number:064x}"

    def goes_away(self) -> None:
        os.kill(self._process.pid, signal.SIGUSR1)

    def is_back(self) -> None:
        os.kill(self._process.pid, signal.SIGUSR2)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def chance() -> random.Random:
    """Its seed is shown when the test fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(params=["fcm", "apns", "webpush"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    started = Provider(request.param, tmp_path)
    yield started
    started.end()


@pytest.fixture
def sending(pushlane: Pushlane, provider: Provider) -> Iterator[Pushlane]:
    """Commands whose only sink is the provider, named after its kind."""
    sinks = {provider.kind: provider.settings()}
    commands = Pushlane(pushlane.folder, {**pushlane.settings, "sinks": json.dumps(sinks)})
    yield commands
    commands.end_all()


def submitted(commands: Pushlane, provider: Provider) -> str:
    """The id of a task whose pushes name themselves in the provider's log."""
    addresses = [provider.address(number) for number in range(SUBSCRIPTIONS)]
    rows = commands.folder / "rows.jsonl"
    lines = (
        {"recipient": f"user-{seq}", "task": "t", "seq": seq, "to": addresses[seq % SUBSCRIPTIONS]}
        for seq in range(1, TOTAL + 1)
    )
    rows.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    sink = ("--sink", provider.kind, "--address", f"{provider.kind}=to")
    return commands(
        "submit", rows, "--level", "high", *sink, "--body", "Hi", "--data", "task", "--data", "seq"
    )


def all_delivered(commands: Pushlane, task: str) -> None:
    """The task is done, and none of its pushes is dead."""
    until(lambda: commands.task(task)["state"] == "done")
    ended = commands.task(task)
    assert (ended["delivered"], ended["dead"]) == (TOTAL, 0)


@pytest.mark.timeout(300)
def test_killed_dispatchers_lose_nothing(
    sending: Pushlane, provider: Provider, chance: random.Random
) -> None:
    task, received = submitted(sending, provider), provider.received
    for _ in range(KILLS):
        dispatcher = sending.dispatch()
        received.until(received.count() + 1 + chance.randrange(TOTAL // 5), dispatcher)
        dispatcher.kill()

    drain = sending.dispatch("--drain")

    assert drain.wait() == 0, drain.text
    all_delivered(sending, task)
    assert set(received.pushes) == set(each_once({"t": TOTAL}))
    assert received.duplicates <= KILLS * (SLOTS + received.busiest(NOT_COUNTED_S))


@pytest.mark.timeout(300)
def test_a_stop_sends_nothing_twice_and_an_outage_loses_nothing(
    sending: Pushlane, provider: Provider
) -> None:
    task, received = submitted(sending, provider), provider.received
    stopped = sending.dispatch()
    received.until(TOTAL // 5, stopped)
    assert stopped.stop() == 0, stopped.text
    dispatcher = sending.dispatch()
    received.until(received.count() + TOTAL // 5, dispatcher)
    assert received.duplicates == 0

    provider.goes_away()
    dispatcher.until("sink_rests")
    provider.is_back()

    received.until(TOTAL, dispatcher)
    all_delivered(sending, task)
    assert dispatcher.stop() == 0, dispatcher.text
    assert set(received.pushes) == set(each_once({"t": TOTAL}))
    assert received.duplicates <= SLOTS, "what was in flight as it went away"
