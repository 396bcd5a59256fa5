"""pulsar-dispatcher on Pulsar: a topic a task, the late one declared before the start.

Its priorities are strict, lower first, with turns among the topics of one. It cannot subscribe or
change them while it runs: new ones need a new dispatcher. `feed` or `work` is its argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import handler
import pulsar
from orders import BODY, follow
from pulsar_dispatcher import PulsarDispatcher

URL = os.environ["PEERS_PULSAR"]
NAMESPACE = os.environ["PEERS_NAMESPACE"]
LEVELS = ("high", "medium", "low")


def topic(task: str) -> str:
    return f"persistent://{NAMESPACE}/{task}"


def feed() -> None:
    client = pulsar.Client(URL, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.devnull))
    producers = {
        task: client.create_producer(
            topic(task),
            batching_enabled=True,
            batching_max_messages=16,
            max_pending_messages=10_000,
            block_if_queue_full=True,
        )
        for task, _ in json.loads(os.environ["PEERS_TASKS"])
    }

    def send(task: str, level: str, pushes: int) -> None:
        for seq in range(1, pushes + 1):
            body = json.dumps([task, seq, level, BODY]).encode()
            producers[task].send_async(body, lambda result, message_id: None)
        producers[task].flush()

    follow(send)
    client.close()


async def handle(message: pulsar.Message) -> None:
    task, seq, level, _ = json.loads(message.data())
    await handler.work_async(task, seq, level)


async def dispatch(weights: list[int]) -> PulsarDispatcher:
    """A dispatcher that is about to run: the larger a level's weight, the sooner its turn."""
    dispatcher = PulsarDispatcher(
        URL,
        concurrency=int(os.environ["PEERS_SLOTS"]),
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.devnull),
    )
    by_level = dict(zip(LEVELS, weights, strict=True))
    for task, level in json.loads(os.environ["PEERS_TASKS"]):
        await dispatcher.subscribe(
            topic(task),
            handle,
            priority=-by_level[level],
            subscription_name=os.environ["PEERS_SUBSCRIPTION"],
            consumer_type=pulsar.ConsumerType.Shared,
        )
    return dispatcher


async def work() -> None:
    dispatcher = await dispatch([6, 3, 1])
    running = asyncio.create_task(dispatcher.run())
    while line := await asyncio.to_thread(sys.stdin.readline):
        await dispatcher.close()
        await running
        dispatcher = await dispatch([int(weight) for weight in line.split()[1].split(":")])
        running = asyncio.create_task(dispatcher.run())
    await dispatcher.close()


if __name__ == "__main__":
    feed() if sys.argv[1] == "feed" else asyncio.run(work())
