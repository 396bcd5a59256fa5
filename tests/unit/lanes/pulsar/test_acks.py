"""Acks of a batch: as one when all of it is acked soon, else one a message."""

from __future__ import annotations

import asyncio
from typing import Any

import _pulsar

from lanes.pulsar.acks import WAIT_S, Acks
from lanes.pulsar.recent import Hold

SIZE = 3
DEADLINE_S = 60.0


class Message:
    def message_id(self) -> _pulsar.MessageId:
        return _pulsar.MessageId(-1, 7, 4, 0)


class Consumer:
    def __init__(self) -> None:
        self.acked: list[Any] = []
        self.heard = asyncio.Event()

    def acknowledge(self, acked: Any) -> None:
        self.acked.append(acked)
        self.heard.set()


def batched(consumer: Consumer, index: int, *, entry: bytes = b"\x08\x07\x10\x04") -> Hold:
    """A message of a batch of `SIZE`, with the id that the client would give it."""
    return Hold(consumer, entry + bytes([0x20, index, 0x30, SIZE]), Message())


async def test_a_whole_batch_is_acked_as_one() -> None:
    acks, consumer = Acks(), Consumer()
    holds = [batched(consumer, index) for index in (2, 0, 1)]
    acks.add(holds[:2])
    acks.add(holds[2:])

    [acked] = consumer.acked
    assert (acked.ledger_id(), acked.entry_id(), acked.batch_index()) == (7, 4, -1)
    assert [hold.message for hold in holds] == [None] * SIZE


async def test_what_is_acked_of_a_batch_goes_alone_when_the_rest_does_not_come() -> None:
    acks, consumer = Acks(), Consumer()
    some = [batched(consumer, 0), batched(consumer, 2)]
    messages = [hold.message for hold in some]
    added_s = asyncio.get_running_loop().time()
    acks.add(some)
    assert consumer.acked == []

    await consumer.heard.wait()

    assert consumer.acked == messages
    assert asyncio.get_running_loop().time() - added_s >= WAIT_S * 0.9


async def test_the_same_message_twice_does_not_stand_for_another() -> None:
    acks, consumer = Acks(), Consumer()
    acks.add([batched(consumer, index) for index in (0, 1, 1)])
    assert consumer.acked == []

    acks.add([batched(consumer, 2)])
    assert len(consumer.acked) == 1


async def test_each_batch_waits_for_its_own() -> None:
    acks, consumer = Acks(), Consumer()
    acks.add([batched(consumer, 0), batched(consumer, 1)])
    acks.add([batched(consumer, 2, entry=b"\x08\x07\x10\x05")])

    assert consumer.acked == []


async def test_a_message_of_no_batch_is_acked_at_once() -> None:
    acks, consumer = Acks(), Consumer()
    acks.add([Hold(consumer, b"\x08\x07\x10\x04", Message())])

    assert len(consumer.acked) == 1


async def test_at_the_end_all_are_sent() -> None:
    acks, consumer = Acks(), Consumer()
    acks.add([batched(consumer, 0)])
    acks.send()

    assert len(consumer.acked) == 1
