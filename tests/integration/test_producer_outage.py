"""A producer whose services go away for a while: nothing is lost, and no caller waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.proxy import Proxy, Way, proxies
from pushlane.core.task import Level
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.lane_content import pushes_of, task_of
from tests.processes import until

pytestmark = pytest.mark.pulsar

LISTEN = "127.0.0.2"
NEVER_WAIT = ProducerOptions(max_block_s=0.0, linger_s=0.01)


@pytest.fixture
def redis_proxy(redis_url: str) -> Iterator[Proxy]:
    url = urlsplit(redis_url)
    with proxies([Way(LISTEN, url.hostname, url.port)]) as [proxy]:
        yield proxy


@pytest.fixture
def settings(pulsar_settings: Settings, redis_url: str, redis_proxy: Proxy) -> Settings:
    """Pulsar, with the registry behind a proxy that can be cut."""
    proxied = redis_url.replace(urlsplit(redis_url).hostname, LISTEN)
    return pulsar_settings.but(**{"redis_url": proxied})


def test_pushes_of_an_outage_wait_in_the_spool_and_arrive_in_order(
    settings: Settings, redis_proxy: Proxy, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    with Producer(
        "events", level=Level.HIGH, spool=spool, settings=settings, options=NEVER_WAIT
    ) as producer:
        producer.push("1")
        assert producer.flush()
        redis_proxy.cut()
        for number in range(2, 2_001):
            producer.push(str(number))
        until(lambda: producer.stats().spooled == 1_999 and producer.stats().trouble != "")

        redis_proxy.heal()

        assert producer.flush(60.0)
        assert producer.stats().trouble == ""
        producer.close(seal=True)

    pushes = pushes_of(settings, producer.task_id)
    assert [push.recipient for push in pushes] == [str(number) for number in range(1, 2_001)]
    assert [push.seq for push in pushes] == list(range(1, 2_001))
    assert task_of(settings, producer.task_id).total == 2_000
