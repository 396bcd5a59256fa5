"""pulsar-dispatcher with a handler that does nothing, on topics that are full already.

Takes what to read as JSON on its input; prints how many it had handled when, every 50 ms, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import pulsar
from pulsar_dispatcher import PulsarDispatcher

EVERY_S = 0.05


async def consume(order: dict) -> list[tuple[float, int]]:
    handled = 0

    async def handle(message: pulsar.Message) -> None:
        nonlocal handled
        handled += 1

    dispatcher = PulsarDispatcher(
        order["url"],
        concurrency=order["slots"],
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, os.devnull),
    )
    for topic in order["topics"]:
        await dispatcher.subscribe(
            topic,
            handle,
            subscription_name=order["subscription"],
            consumer_type=pulsar.ConsumerType.Shared,
            receiver_queue_size=order["queue"],
            initial_position=pulsar.InitialPosition.Earliest,
        )
    running = asyncio.create_task(dispatcher.run())
    marks = [(time.perf_counter(), 0)]
    give_up_at = marks[0][0] + order["seconds"]
    while handled < order["messages"] and marks[-1][0] < give_up_at and not running.done():
        await asyncio.sleep(EVERY_S)
        marks.append((time.perf_counter(), handled))
    await dispatcher.close()
    return marks


if __name__ == "__main__":
    print(json.dumps(asyncio.run(consume(json.load(sys.stdin)))))
