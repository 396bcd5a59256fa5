"""An application pushes on while its broker is cut off, killed, and comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.faults.services import Services, own_services
from pushlane.core.task import Level
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.lane_content import pushes_of, task_of
from tests.processes import until

DEADLINE_S = 800
EVERY_S = 0.002
MOST_BLOCKED_S = 0.5
KEPT = {"journalSyncData": "true"}

pytestmark = [pytest.mark.measures, pytest.mark.timeout(DEADLINE_S)]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with own_services(tmp_path_factory.mktemp("services"), KEPT) as services:
        yield services


class Application(threading.Thread):
    """Pushes 1, 2, 3 … until its end; `longest_s` is the longest that a push took."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self._producer = producer
        self._ended = threading.Event()
        self.pushed = 0
        self.longest_s = 0.0

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            begun = time.monotonic()
            self._producer.push(str(self.pushed + 1))
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.pushed += 1

    def __enter__(self) -> Application:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()


def cut(services: Services, while_away: Callable[[], None]) -> None:
    for path in services.broker_path:
        path.cut()
    while_away()
    for path in services.broker_path:
        path.heal()


def kill(services: Services, while_away: Callable[[], None]) -> None:
    asyncio.run(services.restart_pulsar())


def stall(services: Services, while_away: Callable[[], None]) -> None:
    for path in services.broker_path:
        path.stall()
    while_away()
    for path in services.broker_path:
        path.heal()


@pytest.mark.parametrize("harm", [cut, kill, stall])
def test_every_push_arrives_once_and_in_order(services: Services, tmp_path: Path, harm) -> None:
    urls = services.urls
    settings = Settings(
        broker=urls.broker,
        admin_url=urls.admin,
        redis_url=urls.redis,
        namespace=f"pushlane/t-{harm.__name__}",
    )
    options = ProducerOptions(max_block_s=0.0)
    with Producer(
        "events", level=Level.HIGH, spool=tmp_path / "spool", settings=settings, options=options
    ) as producer:
        with Application(producer) as application:
            until(lambda: producer.stats().sent > 100)

            def many_wait() -> None:
                until(lambda: producer.stats().spooled > 500)

            harm(services, many_wait)
            until(lambda: producer.stats().spooled < 100)
        assert producer.flush(60.0)
        producer.close(seal=True)

    assert application.longest_s < MOST_BLOCKED_S
    total = application.pushed
    pushes = pushes_of(settings, producer.task_id)
    assert [push.recipient for push in pushes] == [str(number) for number in range(1, total + 1)]
    assert [push.seq for push in pushes] == list(range(1, total + 1))
    assert task_of(settings, producer.task_id).total == total
