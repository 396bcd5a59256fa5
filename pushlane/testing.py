"""For the tests of an application: a backend in memory, a receiver, delivery until all is done.

    memory, receiver = MemoryBackend(), Receiver()
    with Producer("orders", connect=memory.connect) as producer:
        producer.push("device-7", title="Paid")
    asyncio.run(run_until_idle(memory, receiver))
    assert receiver.recipients == ["device-7"]

It needs no service and no folder, and reads no settings of the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from pushlane.backends.memory import MemoryBackend
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks.given import AnySink
from pushlane.settings import Settings
from pushlane.util.conversion import seconds

__all__ = ["MemoryBackend", "Receiver", "run_until_idle"]

_DEADLINE_S = 60.0


class Receiver:
    """A sink that remembers the pushes it was given, in their order, and answers as told.

    `answer` is an `Outcome` for every push, or a function from a push to its outcome; it may be
    replaced at any time. `pushes` has one entry for each attempt.
    """

    name = "receiver"
    batch_size = 1
    mixes_tasks = True
    hosts_code = False

    def __init__(self, answer: Outcome | Callable[[Push], Outcome] = DELIVERED) -> None:
        self.answer = answer
        self.pushes: list[Push] = []

    @property
    def recipients(self) -> list[str]:
        """Whom the pushes were for, in the order in which they came."""
        return [push.recipient for push in self.pushes]

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Remember the pushes; return the answer to each."""
        pushes = [delivery.push for delivery in batch]
        self.pushes += pushes
        answer = self.answer
        return [answer if isinstance(answer, Outcome) else answer(push) for push in pushes]

    async def close(self) -> None:
        """It holds nothing."""


async def run_until_idle(
    memory: MemoryBackend,
    sink: AnySink,
    *,
    settings: Settings | None = None,
    timeout_s: float | timedelta | str = _DEADLINE_S,
) -> None:
    """Deliver until no task is left that could move now; paused and scheduled ones may be left.

    `sink` is a receiver, a function, or what else `Dispatcher.open` takes. Settings are the
    defaults unless given. Close producers first: what is open may get more. Raises TimeoutError
    when it takes longer than `timeout_s`.
    """
    own = Settings() if settings is None else settings
    async with (
        asyncio.timeout(seconds("timeout_s", timeout_s, 0)),
        Dispatcher.open(sink=sink, settings=own, connect=memory.connect) as dispatcher,
    ):
        await dispatcher.drained()
