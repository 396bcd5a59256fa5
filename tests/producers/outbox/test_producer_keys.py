"""Pushes with a key of their own: what is refused, what travels, and what waits for upgrades."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.formats import set_min_format
from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import Level
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.lane_content import pushes_of
from tests.processes import until

OLDER = 2
RAISE = "`pushlane formats --min 3`"


def write(settings: Settings, number: int) -> None:
    async def set_it() -> None:
        async with connect(settings) as backend:
            await set_min_format(backend.documents, backend.presence, number)

    asyncio.run(set_it())


@pytest.fixture
def make(settings: Settings, tmp_path: Path) -> Callable[[], Producer]:
    """A producer of this store and the test's spool."""
    return lambda: Producer("orders", level=Level.HIGH, spool=tmp_path / "spool", settings=settings)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (7, "key of a push is of type int; give a text"),
        ("", "is blank"),
        (" \t", "is blank"),
        ("k" * 201, "has 201 characters; give a text of 1 to 200"),
        ("k" * 2**20, "has 1,048,576 characters"),
        ("\ud800", "holds a character that UTF-8 cannot"),
    ],
)
def test_a_key_that_cannot_be_is_refused_and_takes_no_seq(make, key: Any, told: str) -> None:
    with make() as producer:
        with pytest.raises(BadInput, match=told) as raised:
            producer.push("user", title="Paid", key=key)
        assert len(str(raised.value)) < 200
        assert producer.push("user", title="Paid", key="k" * 200).endswith("-1")


def test_a_key_travels_and_each_push_has_an_id(make, settings) -> None:
    with make() as producer:
        ids = [producer.push("user", title="Paid", key="order-7") for _ in range(2)]

    assert [push.push_id for push in pushes_of(settings, producer.task_id)] == ids
    with make() as again:
        again.push("user", title="Paid", key="order-7")
    assert [push.key for push in pushes_of(settings, again.task_id)] == ["order-7"]


def test_while_older_dispatchers_may_be_there_a_key_is_refused_with_what_to_do(
    make, settings
) -> None:
    write(settings, OLDER)
    with make() as producer:
        producer.push("user", title="Paid")
        assert producer.flush()

        with pytest.raises(BadInput, match="would send every copy") as raised:
            producer.push("user", title="Paid", key="order-7")

        assert RAISE in str(raised.value)
        assert producer.push("user", title="Paid").endswith("-2")


def test_what_was_accepted_before_that_was_known_waits_in_the_spool(
    make, settings, monkeypatch
) -> None:
    async def away(*_: object) -> None:
        raise Unreachable("no answer")

    write(settings, OLDER)
    with monkeypatch.context() as patched:
        patched.setattr("pushlane.producers.outbox.sender.Sender._send", away)
        with make() as producer:
            producer.push("user", title="Paid", key="order-7")
            producer.close(timeout_s=0.0)
    with make() as producer:
        until(lambda: RAISE in producer.stats().trouble)
        assert producer.stats().spooled == 1
        producer.close(timeout_s=0.0)

    write(settings, 3)
    with make() as producer:
        assert producer.flush()
    assert [push.key for push in pushes_of(settings, producer.task_id)] == ["order-7"]


def test_a_running_producer_hears_when_keys_may_be_written(make, settings, monkeypatch) -> None:
    monkeypatch.setattr("pushlane.producers.outbox.sender._LOOK_S", 0.01)
    write(settings, OLDER)
    with make() as producer:
        producer.push("user", title="Paid")
        assert producer.flush()
        write(settings, 3)
        until(lambda: _takes_a_key(producer))

    assert [push.key for push in pushes_of(settings, producer.task_id)] == ["", "order-7"]


def _takes_a_key(producer: Producer) -> bool:
    try:
        producer.push("user", title="Paid", key="order-7")
    except BadInput:
        return False
    return True
