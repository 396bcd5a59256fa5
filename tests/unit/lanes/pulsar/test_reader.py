"""The reader's ready signal, on a consumer that the test hands messages to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import _pulsar
import pytest

from lanes.ports import LaneReader, Taken
from lanes.pulsar import reader as reader_module
from lanes.pulsar.acks import Acks
from lanes.pulsar.link import Link
from lanes.pulsar.reader import REFILL_WAIT_S, PulsarReader
from lanes.pulsar.recent import Hold, Recent

PREFETCH = 4
MOST_RECENT = 8


class Message:
    """It is its own id, as different from every other as real ones are."""

    def __init__(self, body: bytes, place: bytes = b"") -> None:
        self._body = body
        self.place = place

    def message_id(self) -> Message:
        return self

    def serialize(self) -> bytes:
        return id(self).to_bytes(8, "big") + self.place

    def data(self) -> bytes:
        return self._body


class Consumer:
    """Answers a receive at once when it holds a message, else when it is given one."""

    def __init__(self) -> None:
        self.held: deque[Message] = deque()
        self.receives: deque[Callable[[Any, Any], None]] = deque()
        self.most_receives = 0
        self.acked: list[Any] = []
        self.closed = False

    def receive_async(self, answer: Callable[[Any, Any], None]) -> None:
        if self.held:
            answer(_pulsar.Result.Ok, self.held.popleft())
            return
        self.receives.append(answer)
        self.most_receives = max(self.most_receives, len(self.receives))

    def receive(self, timeout_ms: int) -> Message:
        assert timeout_ms == 0
        if not self.held:
            raise _pulsar.Timeout
        return self.held.popleft()

    def give(self, *bodies: bytes) -> None:
        for body in bodies:
            self.give_message(Message(body))

    def give_message(self, message: Message) -> None:
        if self.receives:
            self.receives.popleft()(_pulsar.Result.Ok, message)
        else:
            self.held.append(message)

    def acknowledge(self, message: Any) -> None:
        if self.closed:
            raise _pulsar.AlreadyClosed
        self.acked.append(message)

    def close_async(self, answer: Callable[[Any], None]) -> None:
        self.closed = True
        while self.receives:
            self.receives.popleft()(_pulsar.Result.AlreadyClosed, Message(b""))
        answer(_pulsar.Result.Ok)


class Scene:
    def __init__(self) -> None:
        self.consumer = Consumer()
        self.told: list[LaneReader] = []
        self.link = Link(None, "pulsar://broker.test:6650")
        self.recent = Recent(MOST_RECENT)
        self.acks = Acks()
        self.reader = self.read(self.consumer)

    def read(self, consumer: Consumer) -> PulsarReader:
        reader = PulsarReader(
            self.link, "lane", consumer, self.recent, self.acks, PREFETCH, self.told.append
        )
        reader.start()
        return reader

    async def give(self, *bodies: bytes) -> None:
        """From another thread, as the client does; returns once the loop has seen it."""
        await asyncio.to_thread(self.consumer.give, *bodies)

    def take_all(self) -> list[bytes]:
        return [taken.body for taken in iter(self.reader.take, None)]


def ack(taken: Iterable[Taken]) -> None:
    for one in taken:
        one.handle.ack()


async def test_nothing_is_told_before_there_is_a_message() -> None:
    scene = Scene()
    assert scene.reader.take() is None
    assert scene.told == []


async def test_the_first_message_is_told_once_and_all_are_taken_in_order() -> None:
    scene = Scene()
    await scene.give(b"1", b"2", b"3")

    assert scene.told == [scene.reader]
    assert scene.take_all() == [b"1", b"2", b"3"]


async def test_it_is_told_again_only_after_a_none() -> None:
    scene = Scene()
    await scene.give(b"1")
    assert scene.reader.take() is not None
    await scene.give(b"2")
    assert len(scene.told) == 1

    assert scene.take_all() == [b"2"]
    await scene.give(b"3")
    assert len(scene.told) == 2
    assert scene.take_all() == [b"3"]


async def test_a_message_taken_before_the_signal_ran_is_not_told() -> None:
    scene = Scene()
    scene.consumer.give(b"1")
    assert scene.take_all() == [b"1"]

    await asyncio.to_thread(int)  # lets the loop run the signal, which is out of date

    assert scene.told == []


async def test_one_receive_is_outstanding_at_most() -> None:
    scene = Scene()
    for _ in range(3):
        assert scene.reader.take() is None
    await scene.give(b"1")
    scene.take_all()
    scene.take_all()

    assert scene.consumer.most_receives == 1


async def test_a_closed_reader_gives_nothing_and_tells_nothing() -> None:
    scene = Scene()
    scene.consumer.give(b"1")
    await scene.reader.close()
    await scene.reader.close()
    await asyncio.to_thread(int)  # lets the loop run the signal

    assert scene.told == []
    assert scene.reader.take() is None


def test_a_message_that_arrives_after_the_loop_has_closed_harms_nobody() -> None:
    async def opened() -> Scene:
        return Scene()

    scene = asyncio.run(opened())

    scene.consumer.give(b"late")
    assert scene.told == []


async def test_an_ack_goes_to_the_consumer_that_the_message_came_from() -> None:
    scene = Scene()
    await scene.give(b"1", b"2")
    taken = list(iter(scene.reader.take, None))
    ack(taken)

    assert [message.data() for message in scene.consumer.acked] == [b"1", b"2"]


def test_an_ack_after_the_close_is_let_go_and_the_others_are_acked() -> None:
    closed, open_ = Consumer(), Consumer()
    closed.closed = True
    taken = [Taken(b"", "lane", Hold(one, b"id", Message(b""))) for one in (closed, open_)]

    ack(taken)

    assert len(open_.acked) == 1


async def test_what_comes_again_to_a_consumer_is_not_taken_again() -> None:
    scene = Scene()
    message = Message(b"1")
    for again in (message, message):
        scene.consumer.give_message(again)
    scene.consumer.give(b"2")

    assert scene.take_all() == [b"1", b"2"]
    assert scene.consumer.acked == []


async def test_what_comes_again_after_its_ack_is_acked_again() -> None:
    scene = Scene()
    message = Message(b"1")
    scene.consumer.give_message(message)
    ack(list(iter(scene.reader.take, None)))

    scene.consumer.give_message(message)

    assert scene.take_all() == []
    assert scene.consumer.acked == [message, message]


async def test_what_another_consumer_had_is_taken() -> None:
    scene = Scene()
    message = Message(b"1")
    scene.consumer.give_message(message)
    scene.take_all()
    await scene.reader.close()

    later = Consumer()
    reader = scene.read(later)
    later.give_message(message)

    assert [taken.body for taken in iter(reader.take, None)] == [b"1"]


async def test_only_the_most_recent_are_remembered() -> None:
    scene = Scene()
    message = Message(b"1")
    scene.consumer.give_message(message)
    scene.consumer.give(*[b"more"] * MOST_RECENT)
    scene.take_all()

    scene.consumer.give_message(message)

    assert scene.take_all() == [b"1"]


def test_what_is_no_error_of_the_client_is_not_swallowed() -> None:
    with pytest.raises(AttributeError):
        ack([Taken(b"", "lane", Hold(object(), b"id", Message(b"")))])


async def test_a_lane_that_gave_a_whole_prefetch_in_one_run_is_worth_waiting_for() -> None:
    scene = Scene()
    await scene.give(*[b"push"] * PREFETCH)

    scene.take_all()

    assert scene.reader.refill_wait_s() == REFILL_WAIT_S


async def test_a_lane_that_gives_a_few_at_a_time_is_not_waited_for() -> None:
    scene = Scene()
    for _ in range(PREFETCH):
        await scene.give(b"push")
        scene.take_all()

    assert scene.reader.refill_wait_s() == 0


async def test_a_refill_that_comes_too_late_ends_the_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(reader_module.time, "monotonic", lambda: now_s[0])

    scene = Scene()
    await scene.give(*[b"push"] * PREFETCH)
    scene.take_all()
    now_s[0] += 2 * REFILL_WAIT_S

    await scene.give(b"push")
    await asyncio.sleep(0)
    scene.take_all()

    assert scene.reader.refill_wait_s() == 0


async def test_a_batch_is_taken_whole_and_in_order_though_it_is_still_being_unpacked() -> None:
    scene = Scene()
    places = [bytes([0x20, index, 0x30, 4]) for index in range(4)]
    batch = [Message(f"{index}".encode(), place) for index, place in enumerate(places)]
    consumer = Consumer()
    scene.reader = PulsarReader(
        scene.link, "lane", consumer, scene.recent, scene.acks, 64, scene.told.append
    )
    scene.reader.start()
    for message in batch[:2]:
        consumer.give_message(message)
    first = scene.take_all()
    for message in batch[2:]:
        consumer.give_message(message)

    assert first + scene.take_all() == [b"0", b"1", b"2", b"3"]
