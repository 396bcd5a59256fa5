"""From an application's push to its delivery, with dispatchers as real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.core.task import Level
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.processes import Pushlane, Received, each_once, until

PUSHES = 2_000


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
def test_pushes_are_delivered_while_others_are_still_to_come(
    pushlane: Pushlane, deliveries: Received, level: Level
) -> None:
    dispatching = pushlane.dispatch("--sink", deliveries.sink)
    with Producer("events", level=level, settings=Settings(**pushlane.settings)) as producer:
        for _ in range(PUSHES):
            producer.push("user")
        deliveries.until(PUSHES, dispatching)
        assert pushlane.task(producer.task_id)["state"] == "running"

    until(lambda: pushlane.task(producer.task_id)["state"] == "done")
    assert deliveries.pushes == each_once({producer.task_id: PUSHES})


def test_what_an_application_left_is_sent_by_hand_and_the_task_is_done(
    pushlane: Pushlane, deliveries: Received, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    producer = Producer("events", spool=spool, settings=Settings(**pushlane.settings)).open()
    for _ in range(PUSHES):
        producer.push("user")
    producer.close(timeout_s=0)

    assert pushlane("spool", "send", spool, "--seal") == producer.task_id

    pushlane.drain(deliveries.sink)
    assert pushlane.task(producer.task_id)["state"] == "done"
    assert deliveries.pushes == each_once({producer.task_id: PUSHES})
