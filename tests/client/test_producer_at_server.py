"""A producer that has a server and no key of the broker: what it sends is on its lane once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pushlane import BadInput, Producer, PushlaneError, Settings
from pushlane.backends.backend import connect
from pushlane.client import producing
from pushlane.client.lines import Lines
from pushlane.client.remote import Remote
from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.core.push import Push
from pushlane.core.task import State
from pushlane.model.streams import is_of_producer
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.util.errors import LinesBusy
from tests.lane_content import pushes_of, task_of
from tests.served import served

SMALL = ProducerOptions(max_batch=4, linger_s=0.001, max_block_s=5.0)
ADMIN = Caller("root", "cli")

Make = Callable[..., Producer]


@pytest.fixture
def away(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Settings of somebody who has a token of a server alone."""
    token = tmp_path / "token"
    with served(settings, token) as url:
        yield Settings(url=url, token_file=token, data_dir=tmp_path / "nothing")


@pytest.fixture
def make(away: Settings) -> Make:
    def producer(**options: Any) -> Producer:
        given = {"settings": away, "options": SMALL, "level": "high", **options}
        return Producer("orders", **given)

    return producer


def seqs(pushes: list[Push]) -> list[int]:
    return [push.seq for push in pushes]


def await_trouble(producer: Producer) -> str:
    """What keeps it from sending, once it has tried."""
    while not (trouble := producer.stats().trouble):
        assert not producer.flush(0.01)
    return trouble


def test_a_push_arrives_with_all_it_was_given(make: Make, settings: Settings) -> None:
    given: dict[str, Any] = {
        "title": "Paid",
        "body": "Thank you",
        "data": {"order": 7},
        "expires_at_ms": 2_000_000_000_000,
        "attributes": {"region": "eu"},
        "trace_id": "t-1",
        "key": "order-7",
        "collapse": "score",
        "payload": {"default": {"raw": 1}},
    }
    with make(app="shop", quota=3) as producer:
        push_id = producer.push("user-1", **given)

    [push] = pushes_of(settings, producer.task_id)
    assert push.push_id == push_id
    assert (push.recipient, push.title, push.body, push.data) == (
        *("user-1", "Paid", "Thank you"),
        {"order": 7},
    )
    assert (push.expires_at_ms, push.attributes, push.trace_id) == (
        *(2_000_000_000_000, {"region": "eu"}),
        "t-1",
    )
    assert (push.key, push.collapse) == ("order-7", "score")
    assert push.payload("default") == {"raw": 1}
    task = task_of(settings, producer.task_id)
    assert (task.app, task.quota, task.total, task.name) == ("shop", 3, 1, "orders")


def test_all_are_sealed_at_the_end_in_their_order(make: Make, settings: Settings) -> None:
    with make() as producer:
        for number in range(50):
            producer.push(f"user-{number}")
        assert producer.flush()
        assert producer.stats().sent == 50

    assert seqs(pushes_of(settings, producer.task_id)) == [*range(1, 51)]
    assert task_of(settings, producer.task_id).total == 50


def test_one_without_a_spool_is_known_as_such(make: Make, settings: Settings) -> None:
    with make(app="shop") as producer, make(app="shop", spool=settings.data_dir / "spool") as other:
        producer.push("user-1", title="Paid")
        other.push("user-1", title="Paid")
        assert producer.flush()
        assert other.flush()

        assert is_of_producer(task_of(settings, producer.task_id))
        assert not is_of_producer(task_of(settings, other.task_id))


async def test_it_serves_an_event_loop(make: Make, settings: Settings) -> None:
    async with make() as producer:
        await producer.apush("user-1", title="Paid")
        assert await producer.aflush()

    assert seqs(await asyncio.to_thread(pushes_of, settings, producer.task_id)) == [1]


def test_pushes_of_a_key_are_in_order(make: Make, settings: Settings) -> None:
    with make(ordered=True) as producer:
        for _ in range(3):
            producer.push("user", ordered_by="account-7")

    assert [push.after_seq for push in pushes_of(settings, producer.task_id)] == [0, 1, 2]


def test_an_answer_that_is_lost_sends_nothing_twice(
    make: Make, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Lines.send
    lost: list[int] = []

    async def send(self: Lines, lines: Any, first: int) -> None:
        await sent(self, lines, first)
        if first not in lost:
            lost.append(first)
            raise Unreachable("the answer was lost")

    monkeypatch.setattr(Lines, "send", send)
    with make() as producer:
        for number in range(20):
            producer.push(f"user-{number}")

    assert lost
    assert seqs(pushes_of(settings, producer.task_id)) == [*range(1, 21)]


def test_a_spool_goes_on_where_another_process_ended(
    make: Make, settings: Settings, tmp_path: Path
) -> None:
    first = make(spool=tmp_path / "spool").open()
    first.push("user-1")
    assert first.flush()
    first.close()
    second = make(spool=tmp_path / "spool").open()
    second.push("user-2")
    second.close(seal=True)

    assert second.task_id == first.task_id
    assert seqs(pushes_of(settings, second.task_id)) == [1, 2]
    assert task_of(settings, second.task_id).total == 2


def test_a_server_that_is_away_is_waited_for(
    settings: Settings, tmp_path: Path, make: Make, away: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Remote.request
    is_away = [True]

    async def request(self: Any, *given: Any) -> bytes:
        if is_away[0]:
            raise Unreachable("nobody answers")
        return await asked(self, *given)

    monkeypatch.setattr(Remote, "request", request)
    with make() as producer:
        producer.push("user-1")
        assert await_trouble(producer) == "nobody answers"
        is_away[0] = False
        assert producer.flush(20)


def test_lines_that_another_process_holds_are_waited_for(
    make: Make, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Lines.send
    tries = [0]

    async def send(self: Lines, lines: Any, first: int) -> None:
        tries[0] += 1
        if tries[0] == 1:
            raise LinesBusy("lines are being received elsewhere")
        await sent(self, lines, first)

    monkeypatch.setattr(Lines, "send", send)
    with make() as producer:
        producer.push("user-1")
    assert seqs(pushes_of(settings, producer.task_id)) == [1]


def test_a_task_that_was_cancelled_takes_no_more(make: Make, settings: Settings) -> None:
    async def cancel(task_id: str) -> None:
        from pushlane.operations.tasks import CancelTask

        async with connect(settings) as backend:
            await do(backend, settings, ADMIN, CancelTask(task=task_id))

    producer = make().open()
    producer.push("user-1")
    assert producer.flush()
    asyncio.run(cancel(producer.task_id))
    producer.push("user-2")
    with pytest.raises(PushlaneError, match=r"cancelled.*open the producer again"):
        producer.flush(20)
    with pytest.raises(PushlaneError, match="cancelled"):
        producer.close()
    assert task_of(settings, producer.task_id).state is State.CANCELLED


def test_what_the_token_may_not_is_refused_with_what_it_needs(
    away: Settings, make: Make, settings: Settings, tmp_path: Path
) -> None:
    async def viewer() -> str:
        async with connect(settings) as backend:
            asked = CreateToken.made(name="eve", grants="viewer")
            return (await do(backend, settings, ADMIN, asked)).token

    token = tmp_path / "viewer"
    token.write_text(asyncio.run(viewer()))
    producer = make(settings=away.but(token_file=token)).open()
    producer.push("user-1")
    with pytest.raises(TaskConflict, match="has the role viewer, and create-task needs submitter"):
        producer.flush(20)
    with pytest.raises(PushlaneError):
        producer.close()


def test_a_token_that_is_revoked_and_made_anew_goes_on(
    away: Settings, make: Make, settings: Settings
) -> None:
    async def revoked_and_new() -> str:
        async with connect(settings) as backend:
            asked = CreateToken.made(name="again", grants="submitter")
            return (await do(backend, settings, ADMIN, asked)).token

    assert away.token_file is not None
    good = asyncio.run(revoked_and_new())
    away.token_file.write_text("pl_wrong")
    with make() as producer:
        producer.push("user-1")
        assert "token" in await_trouble(producer)
        away.token_file.write_text(good)
        assert producer.flush(20)


def test_what_cannot_travel_is_refused_at_once(make: Make) -> None:
    with make() as producer, pytest.raises(BadInput, match="no recipient"):
        producer.push(" ")


def test_now_and_then_it_says_that_it_is_there(
    make: Make, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "TOUCH_S", 0.01)
    sent = Lines.send
    touched = []

    async def send(self: Lines, lines: Any, first: int) -> None:
        await sent(self, lines, first)
        if not lines:
            touched.append(first)

    monkeypatch.setattr(Lines, "send", send)
    with make() as producer:
        producer.push("user-1")
        assert producer.flush()
        while not touched:
            assert producer.flush()
        producer.push("user-2")

    assert touched[0] == 2
    assert seqs(pushes_of(settings, producer.task_id)) == [1, 2]


def test_the_id_of_another_task_is_refused(make: Make, settings: Settings) -> None:
    from pushlane.operations.receiving import CreateTask

    with make() as producer:
        producer.push("user-1")

    async def again() -> None:
        async with connect(settings) as backend:
            asked = CreateTask.made(level="high", id=producer.task_id)
            await do(backend, settings, ADMIN, asked)

    with pytest.raises(TaskConflict, match="there is a task"):
        asyncio.run(again())
