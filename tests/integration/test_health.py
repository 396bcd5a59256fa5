"""The health of real processes, as Kubernetes asks for it: frozen, blocked, or about to stop."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.probed import OK, Probed
from tests.processes import Pushlane


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Pushlane]:
    commands = Pushlane(tmp_path, {"broker": "embedded", "data_dir": str(tmp_path / "store")})
    yield commands
    commands.end_all()


def test_a_frozen_worker_shows_in_what_its_parent_says(embedded: Pushlane) -> None:
    parent = Probed(
        embedded, "dispatch", "--sink", "null", "--log-format", "json", "--workers", "2"
    )
    parent.until_ready()
    frozen = int(re.findall(r"worker 1 is pid (\d+)", parent.process.text)[0])

    os.kill(frozen, signal.SIGSTOP)
    try:
        parent.until_missing(r"^worker 1: not reached since \d+ s\n$")
        _, text = parent.get("/metrics")
    finally:
        os.kill(frozen, signal.SIGCONT)

    assert 'pushlane_worker_up{worker="0"} 1.0' in text
    assert 'pushlane_worker_up{worker="1"} 0.0' in text
    assert 'pushlane_slots{sink="default",worker="0"}' in text
    assert 'pushlane_slots{sink="default",worker="1"}' not in text
    parent.until_ready()
    assert parent.process.stop() == 0


def held_back(folder: Path) -> Callable[[], object]:
    """Make the pipe that a processor of this folder reads from; return what lets it go on."""
    os.mkfifo(folder / "let_go")
    pipe = os.open(folder / "let_go", os.O_RDWR)  # so that neither end waits for the other
    return lambda: os.write(pipe, b"!")


HELD = """
import asyncio, sys
from prometheus_client import Counter

sent = Counter("shop_sent", "What the shop sent")

async def hold(push):
    sent.inc()
    print('{"action": "delivering"}', file=sys.stderr, flush=True)
    await asyncio.to_thread(open("let_go", "rb").read, 1)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_is_alive_and_not_ready_while_it_finishes_what_is_in_flight(
    embedded: Pushlane, workers: str
) -> None:
    (embedded.folder / "shop.py").write_text(HELD)
    let_go = held_back(embedded.folder)
    embedded.submit("high", 1)
    words = ("dispatch", "--log-format", "json", "--sink", "shop:hold", "--workers", workers)
    running = Probed(embedded, *words)
    running.process.until("delivering")
    _, text = running.get("/metrics")

    os.kill(running.process.pid, signal.SIGTERM)
    running.until("/readyz", lambda found: found[1].startswith("stopping\n"))
    alive = running.get("/livez")
    let_go()

    assert "shop_sent_total" in text
    assert text.count("# TYPE process_cpu_seconds_total counter") == 1
    assert alive == OK
    assert running.process.wait() == 0


BLOCKING = """
import sys

async def block(push):
    print('{"action": "delivering"}', file=sys.stderr, flush=True)
    open("let_go", "rb").read(1)
"""


def test_it_answers_while_a_processor_blocks_its_loop(embedded: Pushlane) -> None:
    (embedded.folder / "shop.py").write_text(BLOCKING)
    let_go = held_back(embedded.folder)
    embedded.submit("high", 1)
    running = Probed(embedded, "dispatch", "--log-format", "json", "--sink", "shop:block")
    running.process.until("delivering")

    running.until_missing(r"^event loop: has not turned for \d+ s\n$")
    assert running.get("/metrics")[0] == 200
    let_go()

    running.until_ready()
    assert running.process.stop() == 0
