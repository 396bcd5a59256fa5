"""`pushlane.testing`, as the tests of an application use it."""

from __future__ import annotations

import asyncio

import pytest

from pushlane import Client, Outcome, Producer, Push, State, SubmitRequest
from pushlane.testing import MemoryBackend, Receiver, run_until_idle


def pushed(memory: MemoryBackend, *recipients: str) -> None:
    with Producer("orders", connect=memory.connect) as producer:
        for one in recipients:
            producer.push(one, title="Paid")


def test_a_receiver_remembers_what_it_was_given(own_environment) -> None:
    memory, receiver = MemoryBackend(), Receiver()
    pushed(memory, "device-7", "device-8")

    asyncio.run(run_until_idle(memory, receiver))

    assert receiver.recipients == ["device-7", "device-8"]
    assert [push.title for push in receiver.pushes] == ["Paid", "Paid"]


def test_a_receiver_answers_as_told(own_environment) -> None:
    memory = MemoryBackend()
    receiver = Receiver(Outcome.dead("gone away"))
    pushed(memory, "device-7")
    asyncio.run(run_until_idle(memory, receiver))
    with Client.sync(connect=memory.connect) as client:
        assert [one.reason for one in client.dead()] == ["gone away"]
        [task] = client.retry_dead(all_there_are=True)

        def answer(push: Push) -> Outcome:
            return Outcome.delivered() if push.recipient == "device-7" else Outcome.dead("who?")

        receiver.answer = answer
        asyncio.run(run_until_idle(memory, receiver))

        assert client.task(task.retried_as).state == State.DONE
        assert client.task(task.retried_as).delivered == 1
    assert receiver.recipients == ["device-7", "device-7"]


async def test_what_is_paused_is_left(own_environment) -> None:
    memory, receiver = MemoryBackend(), Receiver()
    async with Client(connect=memory.connect) as client:
        rows = [{"recipient": "ada"}]
        request = SubmitRequest(source=rows, level="low", title="Hi", paused=True)
        task = (await client.submit(request)).task

        await run_until_idle(memory, receiver)
        assert receiver.recipients == []
        await client.resume(task.id)
        await run_until_idle(memory, receiver)
        assert receiver.recipients == ["ada"]


def test_what_does_not_end_in_time_says_so(own_environment) -> None:
    memory = MemoryBackend()
    pushed(memory, "device-7")

    with pytest.raises(TimeoutError):
        asyncio.run(run_until_idle(memory, Receiver(Outcome.throttled("busy")), timeout_s=0.2))
