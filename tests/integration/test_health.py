"""The health of real processes, as Kubernetes asks for it: in an outage, a freeze and a stop."""

from __future__ import annotations

import http.client
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.faults.services import Services, own_services
from pushlane.lanes.errors import UserError
from tests.integration.marked_pushes import free_port
from tests.processes import DEADLINE_S, Pushlane, Running

pytest.importorskip("pyspark")
pytest.importorskip("cronsim")

OK = (200, "ok\n")
READY = (200, "ready\n")
_LOOK_EVERY_S = 0.05
COMMANDS = {
    "dispatch": ("dispatch", "--log-format", "json"),
    "workers": ("dispatch", "--log-format", "json", "--workers", "2"),
    "rules": ("rules", "serve"),
    "alerts": ("alerts", "run", "--every", "1s"),
    "receipts": ("pipeline", "run"),
}


class Probed:
    """A running command, with the port that its probes ask."""

    def __init__(self, pushlane: Pushlane, *words: str) -> None:
        self._port = free_port()
        self.process: Running = pushlane.start(*words, "--metrics-port", str(self._port))

    def get(self, path: str) -> tuple[int, str]:
        """The status and the text of a path; (0, "") while nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def until(self, path: str, good: Callable[[tuple[int, str]], bool]) -> tuple[int, str]:
        """Ask again and again, and have it live all the while; what it said at last."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not good(found := self.get(path)):
            assert not self.process.has_ended, self.process.text
            assert time.monotonic() < deadline_s, f"{path} says {found}:\n{self.process.text}"
            assert self.get("/livez") in (OK, (0, "")), self.process.text
            time.sleep(_LOOK_EVERY_S)
        return found

    def until_ready(self) -> None:
        self.until("/readyz", lambda found: found == READY)

    def until_missing(self, words: str) -> None:
        self.until(
            "/readyz", lambda found: found[0] == 503 and re.search(words, found[1]) is not None
        )


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    try:
        with own_services(tmp_path_factory.mktemp("health"), {}) as running:
            yield running
    except UserError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Pushlane]:
    commands = Pushlane(tmp_path, {"broker": "embedded", "data_dir": str(tmp_path / "store")})
    yield commands
    commands.end_all()


@pytest.mark.pulsar
def test_an_outage_is_told_and_ends_nobody(services: Services, tmp_path: Path) -> None:
    urls = services.urls
    settings = {"broker": urls.broker, "admin_url": urls.admin, "redis_url": urls.redis}
    pushlane = Pushlane(tmp_path, {**settings, "data_dir": str(tmp_path / "store")})
    try:
        running = {name: Probed(pushlane, *words) for name, words in COMMANDS.items()}
        for one in running.values():
            one.until_ready()

        for path in services.broker_path:
            path.cut()
        for name, one in running.items():
            service = "log of receipts" if name == "receipts" else "broker"
            one.until_missing(rf"{service}: not reached since \d+ s")
        for path in services.broker_path:
            path.heal()
        for one in running.values():
            one.until_ready()

        services.redis_path.cut()
        for name in running.keys() - {"receipts"}:
            running[name].until_missing(r"registry: not reached since \d+ s")
        assert running["receipts"].get("/readyz") == READY
        services.redis_path.heal()
        for one in running.values():
            one.until_ready()

        assert [one.process.stop() for one in running.values()] == [0] * len(running)
    finally:
        pushlane.end_all()


def test_a_frozen_worker_shows_in_what_its_parent_says(embedded: Pushlane) -> None:
    parent = Probed(embedded, *COMMANDS["workers"])
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
    assert 'pushlane_slots{sink="null",worker="0"}' in text
    assert 'pushlane_slots{sink="null",worker="1"}' not in text
    parent.until_ready()
    assert parent.process.stop() == 0


HELD = """
import asyncio, sys
from pathlib import Path
from prometheus_client import Counter

sent = Counter("shop_sent", "What the shop sent")

async def hold(push):
    sent.inc()
    print('{"action": "delivering"}', file=sys.stderr, flush=True)
    while not Path("let_go").exists():
        await asyncio.sleep(0.01)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_is_alive_and_not_ready_while_it_finishes_what_is_in_flight(
    embedded: Pushlane, workers: str
) -> None:
    (embedded.folder / "shop.py").write_text(HELD)
    embedded.submit("high", 1)
    words = ("dispatch", "--log-format", "json", "--sink", "shop:hold", "--workers", workers)
    running = Probed(embedded, *words)
    running.process.until("delivering")
    _, text = running.get("/metrics")

    os.kill(running.process.pid, signal.SIGTERM)
    running.until("/readyz", lambda found: found[1].startswith("stopping\n"))
    alive = running.get("/livez")
    (embedded.folder / "let_go").touch()

    assert "shop_sent_total" in text
    assert text.count("# TYPE process_cpu_seconds_total counter") == 1
    assert alive == OK
    assert running.process.wait() == 0


BLOCKING = """
import sys, time
from pathlib import Path

async def block(push):
    print('{"action": "delivering"}', file=sys.stderr, flush=True)
    while not Path("let_go").exists():
        time.sleep(0.01)
"""


def test_it_answers_while_a_processor_blocks_its_loop(embedded: Pushlane) -> None:
    (embedded.folder / "shop.py").write_text(BLOCKING)
    embedded.submit("high", 1)
    running = Probed(embedded, "dispatch", "--log-format", "json", "--sink", "shop:block")
    running.process.until("delivering")

    running.until_missing(r"^event loop: has not turned for \d+ s\n$")
    assert running.get("/metrics")[0] == 200
    (embedded.folder / "let_go").touch()

    running.until_ready()
    assert running.process.stop() == 0
