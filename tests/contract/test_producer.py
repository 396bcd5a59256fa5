"""What a producer promises on every backend, also when its process is killed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import Unreachable
from pushlane.core.push import Push
from pushlane.core.task import Level, Progress
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.contract.conftest import ON_PLACES
from tests.core.support import MemorySink, drain
from tests.lane_content import pushes_of, task_of

KILLS = 3


@pytest.fixture(params=ON_PLACES)
def backend_kind(request: pytest.FixtureRequest) -> str:
    """Not memory: processes are killed, and all of them find the backend by its settings."""
    return request.param


def producer(settings: Settings, spool: Path | None = None, level: Level = Level.HIGH) -> Producer:
    return Producer("events", level=level, settings=settings, spool=spool)


def pushed_until_killed(settings: Settings, spool: Path, first: int, *words: str) -> int:
    """The last number that a process said to be on its lane, before it was killed in mid-stream."""
    command = [sys.executable, "-m", "tests.contract.pusher", str(spool), str(first), *words]
    with subprocess.Popen(
        command, env=os.environ | settings.as_environment(), stdout=subprocess.PIPE
    ) as process:
        for _ in range(random.randint(1, 10)):
            told = int(process.stdout.readline())
        process.kill()
        return max([told, *map(int, process.stdout.read().split(b"\n")[:-1])])


def numbers(pushes: list[Push]) -> list[int]:
    return [int(push.recipient) for push in pushes]


def assert_each_once(pushes: list[Push], total: int) -> None:
    assert [push.seq for push in pushes] == list(range(1, total + 1))


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
def test_pushes_are_on_the_lane_in_order_each_once(settings, tmp_path, level: Level) -> None:
    with producer(settings, tmp_path / "spool", level) as one:
        for number in range(1, 101):
            one.push(str(number))
        one.close(seal=True)

    assert task_of(settings, one.task_id).total == 100
    pushes = pushes_of(settings, one.task_id)
    assert numbers(pushes) == list(range(1, 101))
    assert_each_once(pushes, 100)


def test_a_killed_application_loses_nothing_that_was_kept_and_doubles_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    promised, first = [], 1
    for _ in range(KILLS):
        promised.append((first, pushed_until_killed(settings, spool, first)))
        first = promised[-1][1] + 100_000

    with producer(settings, spool) as last:
        last.push(str(first))
        last.close(seal=True)

    pushes = pushes_of(settings, last.task_id)
    assert task_of(settings, last.task_id).total == len(pushes)
    assert_each_once(pushes, len(pushes))
    found = numbers(pushes)
    assert found == sorted(set(found))
    assert found[-1] == first
    for begun, told in promised:
        of_this = [number for number in found if begun <= number < begun + 100_000]
        assert of_this == list(range(begun, begun + len(of_this)))
        assert of_this[-1] >= told


def test_an_application_that_pushes_again_after_a_kill_sends_each_key_once(
    settings: Settings, tmp_path: Path
) -> None:
    """It cannot know what was sent: so it begins again before that."""
    spool, first = tmp_path / "spool", 1
    for _ in range(KILLS):
        told = pushed_until_killed(settings, spool, first, "keyed")
        first = max(1, told - 60)
    with producer(settings, spool) as last:
        for number in range(first, told + 1):
            last.push(str(number), key=str(number))
        last.close(seal=True)

    sink = MemorySink()
    progress = asyncio.run(drained(settings, sink, last.task_id))

    sent = sorted(int(delivery.push.recipient) for delivery in sink.received)
    assert sent == list(range(1, len(sent) + 1))
    assert len(sent) >= told
    assert progress.delivered == len(sent)
    assert progress.dropped >= 60
    assert progress.finished == task_of(settings, last.task_id).total


def test_an_application_that_is_killed_keeps_the_order_of_its_keys(
    settings: Settings, tmp_path: Path
) -> None:
    spool, first = tmp_path / "spool", 1
    for _ in range(KILLS):
        first = pushed_until_killed(settings, spool, first, "ordered") + 100_000
    with Producer("events", level=Level.HIGH, ordered=True, spool=spool, settings=settings) as last:
        last.push(str(first), ordered_by=str(first % 3))

    latest: dict[int, int] = {}
    pushes = pushes_of(settings, last.task_id)
    for push in pushes:
        key = int(push.recipient) % 3
        assert push.after_seq == latest.get(key, 0)
        latest[key] = push.seq
    assert_each_once(pushes, len(pushes))
    assert int(pushes[-1].recipient) == first


async def drained(settings: Settings, sink: MemorySink, task_id: str) -> Progress:
    async with connect(settings) as backend:
        await drain(backend, sink, settings)
        [progress] = await backend.registry.progress([task_id])
        return progress


def test_what_a_lane_got_before_a_lost_answer_is_not_doubled(settings, tmp_path, monkeypatch):
    """As when the connection breaks after a publish: the producer cannot know, and sends again."""
    monkeypatch.setattr("pushlane.producers.outbox.sender.connect", LosingAnswers(2).connect)
    with producer(settings, tmp_path / "spool") as one:
        for number in range(1, 51):
            one.push(str(number))
            if number in (7, 20):
                assert one.flush()
        assert one.flush()
        assert one.stats().failed_sends == 2

    pushes = pushes_of(settings, one.task_id)
    assert numbers(pushes) == list(range(1, 51))
    assert_each_once(pushes, 50)


class LosingAnswers:
    """A backend whose first publishes succeed without saying so."""

    def __init__(self, times: int) -> None:
        self._left = times

    def connect(self, settings: Settings):
        @asynccontextmanager
        async def connected():
            async with connect(settings) as backend:
                yield replace(backend, broker=_Losing(backend.broker, self))

        return connected()

    def lose(self) -> bool:
        self._left -= 1
        return self._left >= 0


class _Losing:
    def __init__(self, real, answers: LosingAnswers) -> None:
        self._real = real
        self._answers = answers

    def __getattr__(self, name: str):
        return getattr(self._real, name)

    async def publish(self, *arguments, **options) -> None:
        await self._real.publish(*arguments, **options)
        if self._answers.lose():
            raise Unreachable("the answer was lost")


def test_an_event_loop_can_feed_it(settings, tmp_path) -> None:
    async def use() -> str:
        async with producer(settings, tmp_path / "spool") as one:
            for number in range(1, 101):
                await one.apush(str(number))
            assert await one.aflush()
            return one.task_id

    task_id = asyncio.run(use())

    assert_each_once(pushes_of(settings, task_id), 100)
