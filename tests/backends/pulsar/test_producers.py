"""How many producers stay open, on a client that answers when it is told to."""

from __future__ import annotations

import asyncio
from typing import Any

import _pulsar

from pushlane.backends.pulsar.broker import ProducerKey, Producers
from pushlane.backends.pulsar.connection import Connection

LIMIT = 2
LANES = 8
CLOSING_S = 0.01


class Producer:
    def is_connected(self) -> bool:
        return True

    def close_async(self, answer: Any) -> None:
        asyncio.get_running_loop().call_later(CLOSING_S, answer, _pulsar.Result.Ok)


class Client:
    def create_producer_async(self, topic: str, configuration: Any, answer: Any) -> None:
        answer(_pulsar.Result.Ok, Producer())


async def test_many_that_return_theirs_at_once_close_each_only_once() -> None:
    producers = Producers(Connection(Client(), "pulsar://broker.test:6650"), "t/n", limit=LIMIT)
    all_have_one = asyncio.Barrier(LANES)
    for number in range(LIMIT):
        async with producers.borrow(ProducerKey(f"idle-{number}", "")):
            pass

    async def use(number: int) -> None:
        async with producers.borrow(ProducerKey(f"lane-{number}", "")):
            await all_have_one.wait()

    await asyncio.gather(*map(use, range(LANES)))

    assert len(producers) == LIMIT
