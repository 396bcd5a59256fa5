"""Kafka with a topic a level: one partition each, which a worker reads by the levels' weights.

The usual design of a service with priorities on Kafka, with turns as even as ours: the next push is
of the level that is furthest behind its weight (smooth weighted round-robin). Within a level the
order is the topic's. An offset is committed once all before it are done. `feed` or `work` is its
argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque

import handler
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from orders import BODY, follow

SERVERS = os.environ["PEERS_KAFKA"]
LEVELS = ("high", "medium", "low")
AT_HAND = 100
IDLE_S = 0.002
COMMIT_S = 1.0


def feed() -> None:
    producer = Producer({"bootstrap.servers": SERVERS, "acks": "all", "linger.ms": 1})

    def send(task: str, level: str, pushes: int) -> None:
        for seq in range(1, pushes + 1):
            producer.produce(level, json.dumps([task, seq, level, BODY]).encode())
            producer.poll(0)
        producer.flush()

    follow(send)


class Topic:
    """A level's topic: what is at hand of it, and which of its offsets are in progress."""

    def __init__(self, level: str, weight: int) -> None:
        self.level = level
        self.weight = weight
        self.credit = 0
        self.at_hand: deque = deque()
        self._doing: set[int] = set()
        self._next = 0
        self._committed = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": SERVERS,
                "group.id": level,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([level])

    def fill(self) -> None:
        if len(self.at_hand) < AT_HAND // 2:
            for message in self._consumer.consume(AT_HAND // 2, 0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.at_hand.append(message)

    def take(self) -> tuple[int, str, int]:
        """Return the offset of its next push, with the push's task and seq."""
        message = self.at_hand.popleft()
        task, seq, _, _ = json.loads(message.value())
        self._doing.add(message.offset())
        self._next = message.offset() + 1
        return message.offset(), task, seq

    def done(self, offset: int) -> None:
        self._doing.remove(offset)

    def commit(self) -> None:
        upto = min(self._doing, default=self._next)
        if upto > self._committed:
            self._consumer.commit(offsets=[TopicPartition(self.level, 0, upto)])
            self._committed = upto


class Worker:
    def __init__(self) -> None:
        self.topics = [
            Topic(level, weight) for level, weight in zip(LEVELS, (6, 3, 1), strict=True)
        ]
        self._slots = asyncio.Semaphore(int(os.environ["PEERS_SLOTS"]))
        self._working: set[asyncio.Task] = set()

    def reweigh(self, weights: list[int]) -> None:
        for topic, weight in zip(self.topics, weights, strict=True):
            topic.weight, topic.credit = weight, 0

    async def run(self) -> None:
        while True:
            await self._slots.acquire()
            while (topic := self._next()) is None:  # noqa: ASYNC110 - Kafka tells nobody
                await asyncio.sleep(IDLE_S)
            work = asyncio.create_task(self._work(topic, *topic.take()))
            self._working.add(work)
            work.add_done_callback(self._working.discard)

    async def commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            for topic in self.topics:
                topic.commit()

    def _next(self) -> Topic | None:
        for topic in self.topics:
            topic.fill()
        waiting = [topic for topic in self.topics if topic.at_hand]
        for topic in waiting:
            topic.credit += topic.weight
        if not waiting:
            return None
        chosen = max(waiting, key=lambda topic: topic.credit)
        chosen.credit -= sum(topic.weight for topic in waiting)
        return chosen

    async def _work(self, topic: Topic, offset: int, task: str, seq: int) -> None:
        try:
            await handler.work_async(task, seq, topic.level)
        finally:
            topic.done(offset)
            self._slots.release()


async def obey(worker: Worker) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        worker.reweigh([int(weight) for weight in line.split()[1].split(":")])


async def work() -> None:
    """Until its input ends, or a part of it fails."""
    worker = Worker()
    parts = {asyncio.create_task(part) for part in (worker.run(), worker.commit(), obey(worker))}
    ended, others = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    for part in others:
        part.cancel()
    for part in ended:
        part.result()


if __name__ == "__main__":
    feed() if sys.argv[1] == "feed" else asyncio.run(work())
