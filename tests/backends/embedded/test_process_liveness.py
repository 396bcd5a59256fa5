"""A lock tells whether an owner's process lives: a stopped one does, a killed one does not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from pushlane.backends.embedded.owners import Owner, is_alive

HOLD = """
import sys
from pathlib import Path
from pushlane.backends.embedded.owners import Owner
owner = Owner(Path(sys.argv[1]))
owner.start()
print(owner.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_an_owner_lives_from_its_start_to_its_end(tmp_path):
    owner = Owner(tmp_path)
    owner.start()
    assert is_alive(tmp_path, owner.name)

    owner.end()

    assert not is_alive(tmp_path, owner.name)


def test_an_owner_that_is_stopped_lives(tmp_path, process):
    name = process.stdout.readline().strip()

    process.send_signal(signal.SIGSTOP)

    assert is_alive(tmp_path, name)


def test_an_owner_that_is_killed_does_not_live(tmp_path, process):
    name = process.stdout.readline().strip()
    assert is_alive(tmp_path, name)

    process.kill()
    process.wait()

    assert not is_alive(tmp_path, name)
