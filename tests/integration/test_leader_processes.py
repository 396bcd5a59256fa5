"""A leader that is stopped until another leads, and then goes on: it changes nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.processes import ROOT, Pushlane


class Leading:
    """A process that leads and changes the task, once at once and once when it is told to go on."""

    def __init__(self, pushlane: Pushlane, holder: str, task: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.leader_process", holder, task],
            env={**os.environ, **_environment(pushlane.settings)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _environment(settings: dict[str, str]) -> dict[str, str]:
    return {f"PUSHLANE_{name.upper()}": str(value) for name, value in settings.items()}


@pytest.fixture
def task(pushlane: Pushlane) -> str:
    return pushlane.submit("high", 3)


@pytest.fixture
def old(pushlane: Pushlane, task: str) -> Iterator[Leading]:
    leading = Leading(pushlane, "old", task)
    yield leading
    leading.end()


def test_a_leader_that_wakes_after_losing_the_lease_changes_nothing(
    pushlane: Pushlane, task: str, old: Leading
) -> None:
    assert old.says() == "leads"
    old.stop()
    new = Leading(pushlane, "new", task)
    try:
        assert new.says() == "leads"
        by_new = pushlane.task(task)

        old.go_on()
        assert old.says() == "superseded"

        assert by_new["reason"] == "new"
        assert pushlane.task(task) == by_new
    finally:
        new.end()
