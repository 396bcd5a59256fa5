"""The real stack: up, a message through the broker and a task through Redis, down."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import stack
from dev.stack import Ports, Prefer, docker
from dev.stack.local import HOME_VARIABLE, check_java, pulsar_home, redis_server
from pushlane.backends.redis import connect_redis
from pushlane.core.errors import UserError
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes

WINDOW_S = 600.0

pulsar = pytest.importorskip("pulsar")

TOPIC = "persistent://public/default/stack-test"
FREE = Ports(broker=0, admin=0, redis=0)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cache"
    yield folder
    stack.down(folder, delete_data=True)


def absent(way: Prefer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why this machine cannot run the stack this way; empty when it can."""
    if way == "docker":
        return docker.unusable_reason(print)
    try:
        check_java()
        redis_server()
        home = pulsar_home(stack.default_cache_dir(), print)
    except UserError as error:
        return str(error)
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    return ""


def admin(urls: stack.StackUrls, path: str) -> None:
    request = urllib.request.Request(f"{urls.admin}/admin/v2/{path}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


def open_topic(urls: stack.StackUrls) -> None:
    admin(urls, "persistent/public/default/stack-test")
    admin(urls, "persistent/public/default/stack-test/subscription/s")


def publish(urls: stack.StackUrls, body: bytes) -> None:
    client = pulsar.Client(urls.broker)
    try:
        client.create_producer(TOPIC).send(body)
    finally:
        client.close()


def take(urls: stack.StackUrls) -> bytes:
    client = pulsar.Client(urls.broker)
    try:
        return bytes(client.subscribe(TOPIC, "s").receive(10_000).data())
    finally:
        client.close()


async def keep_task(urls: stack.StackUrls) -> State:
    task = Task(id="t", level=Level.HIGH, lane="task-t")
    async with connect_redis(urls.redis, "stack-test", None, WINDOW_S) as redis:
        await redis.registry.add(task)
        return (await redis.registry.change("t", task_changes.start)).state


@pytest.mark.pulsar
@pytest.mark.parametrize("way", ["local", "docker"])
def test_what_was_published_before_a_restart_is_there_after_it(
    way: Prefer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := absent(way, monkeypatch):
        pytest.skip(reason)
    urls = stack.up(cache, print, prefer=way, ports=FREE)
    open_topic(urls)
    publish(urls, b"kept")
    assert asyncio.run(keep_task(urls)) is State.RUNNING
    stack.down(cache, delete_data=False)
    assert stack.status(cache) is None

    urls = stack.up(cache, print, prefer=way, ports=FREE)

    assert take(urls) == b"kept"
