"""The reader's ready signal, on a consumer that the test hands messages to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import _pulsar
import pytest

from pushlane.backends.pulsar.connection import Connection
from pushlane.backends.pulsar.reader import (
    MessageHandle,
    PulsarReader,
    RedeliveryFilter,
    Subscriber,
)
from pushlane.backends.pulsar.stalls import StallWatch, Topic
from pushlane.core.ports import LaneReader, Taken

DEPTH = 4
MOST_RECENT = 8


class Message:
    """It is its own id, as different from every other as real ones are."""

    def __init__(self, body: bytes, place: int = -1) -> None:
        self._body = body
        self._place = place

    def message_id(self) -> Message:
        return self

    def serialize(self) -> bytes:
        return id(self).to_bytes(8, "big")

    def batch_index(self) -> int:
        return self._place

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
        self.connected = True

    def receive_async(self, answer: Callable[[Any, Any], None]) -> None:
        if self.held:
            answer(_pulsar.Result.Ok, self.held.popleft())
            return
        self.receives.append(answer)
        self.most_receives = max(self.most_receives, len(self.receives))

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

    def is_connected(self) -> bool:
        return self.connected

    def close_async(self, answer: Callable[[Any], None]) -> None:
        self.closed = True
        while self.receives:
            self.receives.popleft()(_pulsar.Result.AlreadyClosed, Message(b""))
        answer(_pulsar.Result.Ok)


class Scene:
    def __init__(self) -> None:
        self.consumer = Consumer()
        self.told: list[LaneReader] = []
        self.connection = Connection(None, "pulsar://broker.test:6650")
        self.recent = RedeliveryFilter(MOST_RECENT)
        self.reader = self.read(self.consumer)

    def read(self, consumer: Consumer) -> PulsarReader:
        reader = PulsarReader(
            self.connection, "lane", consumer, self.recent, DEPTH, self.told.append
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


def play(scenario: Callable[[Scene], Any]) -> None:
    async def run() -> None:
        await scenario(Scene())

    asyncio.run(run())


def test_nothing_is_told_before_there_is_a_message() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.reader.take() is None
        assert scene.told == []

    play(scenario)


def test_the_first_message_is_told_once_and_all_are_taken_in_order() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.give(b"1", b"2", b"3")

        assert scene.told == [scene.reader]
        assert scene.take_all() == [b"1", b"2", b"3"]

    play(scenario)


def test_it_is_told_again_only_after_a_none() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.give(b"1")
        assert scene.reader.take() is not None
        await scene.give(b"2")
        assert len(scene.told) == 1

        assert scene.take_all() == [b"2"]
        await scene.give(b"3")
        assert len(scene.told) == 2
        assert scene.take_all() == [b"3"]

    play(scenario)


def test_a_message_taken_before_the_signal_ran_is_not_told() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.give(b"1")
        assert scene.take_all() == [b"1"]

        await asyncio.to_thread(int)  # lets the loop run the signal, which is out of date

        assert scene.told == []

    play(scenario)


def test_one_receive_is_outstanding_at_most() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            assert scene.reader.take() is None
        await scene.give(b"1")
        scene.take_all()
        scene.take_all()

        assert scene.consumer.most_receives == 1

    play(scenario)


def test_a_closed_reader_gives_nothing_and_tells_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.give(b"1")
        await scene.reader.close()
        await scene.reader.close()
        await asyncio.to_thread(int)  # lets the loop run the signal

        assert scene.told == []
        assert scene.reader.take() is None

    play(scenario)


def test_a_message_that_arrives_after_the_loop_has_closed_harms_nobody() -> None:
    scenes: list[Scene] = []

    async def scenario(scene: Scene) -> None:
        scenes.append(scene)

    play(scenario)

    scenes[0].consumer.give(b"late")
    assert scenes[0].told == []


def test_an_ack_goes_to_the_consumer_that_the_message_came_from() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.give(b"1", b"2")
        taken = list(iter(scene.reader.take, None))
        ack(taken)

        assert [message.data() for message in scene.consumer.acked] == [b"1", b"2"]

    play(scenario)


def test_an_ack_after_the_close_is_let_go_and_the_others_are_acked() -> None:
    async def scenario(scene: Scene) -> None:
        closed, consumer = Consumer(), Consumer()
        closed.closed = True
        ack(
            Taken(b"", "lane", MessageHandle(scene.read(one), b"id", Message(b"")))
            for one in (closed, consumer)
        )

        assert len(consumer.acked) == 1

    play(scenario)


def test_what_comes_again_to_a_consumer_is_not_taken_again() -> None:
    async def scenario(scene: Scene) -> None:
        message = Message(b"1")
        for again in (message, message):
            scene.consumer.give_message(again)
        scene.consumer.give(b"2")

        assert scene.take_all() == [b"1", b"2"]
        assert scene.consumer.acked == []

    play(scenario)


def test_what_is_at_hand_is_in_doubt_for_a_while_after_something_came_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        now_s = 0.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)
        subscriber = subscriber_of(scene)
        before = subscriber.in_doubt
        message = Message(b"1")
        hold = partial(subscriber._recent.hold, scene.reader)
        assert hold(message) is not None
        unharmed = subscriber.in_doubt
        assert hold(message) is None

        assert [before, unharmed, subscriber.in_doubt] == [False, False, True]
        now_s = 11.0
        assert not subscriber.in_doubt

    play(scenario)


def test_what_is_at_hand_is_in_doubt_after_a_loss_and_once_more_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But not for hours, as the registry would be asked about the same again and again."""
    monkeypatch.setattr("pushlane.backends.pulsar.reader._LOOK_EVERY_S", 0.0)

    async def scenario(scene: Scene) -> None:
        doubts: list[None] = []
        subscriber = subscriber_of(scene)
        subscriber._topics[scene.reader] = "topic"
        monkeypatch.setattr(subscriber, "_doubt", lambda: doubts.append(None))
        monkeypatch.setattr(scene.connection, "answers", never)
        watch = asyncio.create_task(subscriber._renew_lost())
        counts: list[int] = []
        for is_connected in (True, False, True):
            scene.consumer.connected = is_connected
            for _ in range(10):
                await asyncio.sleep(0)
            counts.append(len(doubts))
        watch.cancel()

        assert counts == [0, 1, 2]

    play(scenario)


def test_what_comes_again_after_its_ack_is_acked_again() -> None:
    async def scenario(scene: Scene) -> None:
        message = Message(b"1")
        scene.consumer.give_message(message)
        ack(list(iter(scene.reader.take, None)))

        scene.consumer.give_message(message)

        assert scene.take_all() == []
        assert scene.consumer.acked == [message, message]

    play(scenario)


def test_what_another_consumer_had_is_taken() -> None:
    async def scenario(scene: Scene) -> None:
        message = Message(b"1")
        scene.consumer.give_message(message)
        scene.take_all()
        await scene.reader.close()

        later = Consumer()
        reader = scene.read(later)
        later.give_message(message)

        assert [taken.body for taken in iter(reader.take, None)] == [b"1"]

    play(scenario)


def test_of_acked_ones_only_the_most_recent_are_remembered() -> None:
    async def scenario(scene: Scene) -> None:
        message = Message(b"1")
        scene.consumer.give_message(message)
        ack(iter(scene.reader.take, None))
        scene.consumer.give(*[b"more"] * MOST_RECENT)
        scene.take_all()

        scene.consumer.give_message(message)

        assert scene.take_all() == [b"1"]

    play(scenario)


def test_one_that_waits_long_is_remembered_until_its_ack() -> None:
    async def scenario(scene: Scene) -> None:
        message = Message(b"waits")
        scene.consumer.give_message(message)
        scene.take_all()
        for _ in range(5 * MOST_RECENT):
            scene.consumer.give(b"passes")
            ack(iter(scene.reader.take, None))

        scene.consumer.give_message(message)

        assert scene.take_all() == []
        assert len(scene.recent._holds) == MOST_RECENT

    play(scenario)


def test_what_a_closed_reader_has_not_acked_is_forgotten() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.give(*[b"left"] * 5 * MOST_RECENT)
        scene.take_all()
        assert len(scene.recent._holds) == 5 * MOST_RECENT
        await scene.reader.close()

        other = scene.read(consumer := Consumer())
        consumer.give(*[b"more"] * 5 * MOST_RECENT)
        ack(iter(other.take, None))

        assert {hold.reader for hold in scene.recent._holds.values()} == {other}

    play(scenario)


def test_what_is_no_error_of_the_client_is_not_swallowed() -> None:
    with pytest.raises(AttributeError):
        ack([Taken(b"", "lane", MessageHandle(object(), b"id", Message(b"")))])


def test_a_batch_of_an_older_version_is_taken_whole_though_it_is_still_being_unpacked() -> None:
    async def scenario(scene: Scene) -> None:
        batch = [Message(f"{index}".encode(), index) for index in range(4)]
        for message in batch[:2]:
            scene.consumer.give_message(message)
        first = scene.take_all()
        for message in batch[2:]:
            scene.consumer.give_message(message)

        assert first + scene.take_all() == [b"0", b"1", b"2", b"3"]

    play(scenario)


def test_a_message_of_a_batch_is_told_from_one_that_came_alone() -> None:
    async def scenario(scene: Scene) -> None:
        for message in (Message(b"alone"), Message(b"first", 0), Message(b"second", 1)):
            scene.consumer.give_message(message)

        parts = {taken.body: taken.is_part for taken in iter(scene.reader.take, None)}

        assert parts == {b"alone": False, b"first": True, b"second": True}

    play(scenario)


async def never(_topic: str) -> bool:
    return False


def subscriber_of(scene: Scene) -> Subscriber:
    async def unsent(_lane: str, _consumer: str) -> int:
        return 0

    async def unload(_lane: str) -> None:
        raise AssertionError("nothing is stalled")

    return Subscriber(scene.connection, DEPTH, StallWatch(Topic(unsent, unload)))


def test_it_is_idle_when_it_waits_and_all_that_it_gave_out_is_acked() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.reader.is_idle
        await scene.give(b"1")
        at_hand = scene.reader.is_idle
        [taken] = iter(scene.reader.take, None)
        in_hand = scene.reader.is_idle
        ack([taken, taken])

        assert [at_hand, in_hand, scene.reader.is_idle] == [False, False, True]

    play(scenario)


def test_one_that_is_sent_nothing_closes_its_consumer_before_it_opens_another() -> None:
    async def scenario(scene: Scene) -> None:
        later = Consumer()

        async def subscribe() -> Consumer:
            assert scene.consumer.closed
            return later

        await scene.reader.reopen(subscribe)
        await asyncio.to_thread(later.give, b"1")

        assert scene.told == [scene.reader]
        assert scene.take_all() == [b"1"]

    play(scenario)


async def renew(scene: Scene) -> Consumer:
    """Give the reader another consumer, as after an outage."""
    later = Consumer()

    async def subscribe() -> Consumer:
        return later

    scene.consumer.connected = False
    assert scene.reader.is_lost
    await scene.reader.renew(subscribe)
    assert not scene.reader.is_lost
    assert scene.consumer.closed
    return later


def test_a_reader_goes_on_with_another_consumer_and_is_told_of_its_messages() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.reader.take() is None
        later = await renew(scene)

        await asyncio.to_thread(later.give, b"1")

        assert scene.told == [scene.reader]
        assert scene.take_all() == [b"1"]

    play(scenario)


def test_what_was_given_out_before_is_acked_by_the_new_consumer_and_not_taken_again() -> None:
    async def scenario(scene: Scene) -> None:
        acked, in_hand, in_stock = Message(b"1"), Message(b"2"), Message(b"3")
        for message in (acked, in_hand):
            scene.consumer.give_message(message)
        first, second = iter(scene.reader.take, None)
        ack([first])
        scene.consumer.give_message(in_stock)
        later = await renew(scene)

        for message in (acked, in_hand, in_stock):
            later.give_message(message)

        assert scene.take_all() == [b"3"]
        ack([second])
        assert later.acked == [acked, in_hand]

    play(scenario)


def test_a_consumer_that_the_client_has_connected_meanwhile_is_kept() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.reader.take() is None
        later = Consumer()

        async def subscribe() -> Consumer:
            scene.consumer.connected = True
            return later

        scene.consumer.connected = False
        await scene.reader.renew(subscribe)

        assert later.closed
        assert not scene.consumer.closed
        await scene.give(b"1")
        assert scene.take_all() == [b"1"]

    play(scenario)


def test_a_late_answer_of_the_old_consumer_takes_the_place_of_no_message() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.reader.take() is None
        [late] = scene.consumer.receives
        later = await renew(scene)
        later.give(b"2")

        late(_pulsar.Result.Ok, Message(b"1"))

        assert scene.take_all() == [b"2"]

    play(scenario)


def test_a_reader_that_was_closed_meanwhile_does_not_come_back() -> None:
    async def scenario(scene: Scene) -> None:
        later = Consumer()

        async def subscribe() -> Consumer:
            await scene.reader.close()
            return later

        await scene.reader.renew(subscribe)

        assert later.closed

    play(scenario)
