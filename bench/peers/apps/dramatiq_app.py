"""Dramatiq on Redis: a queue and an actor a level, whose priorities are strict.

They stand in the code, so a change is a reload of the workers: they are read from a file here.
`python dramatiq_app.py` feeds it.
"""

from __future__ import annotations

import os
from pathlib import Path

import dramatiq
import handler
from dramatiq.brokers.redis import RedisBroker
from orders import BODY, follow

LEVELS = ("high", "medium", "low")

dramatiq.set_broker(RedisBroker(url=os.environ["PEERS_REDIS"]))


def priorities() -> dict[str, int]:
    """Lower goes first: the level with the largest weight."""
    weights = Path(os.environ["PEERS_WEIGHTS"]).read_text().split(":")
    return {level: -int(weight) for level, weight in zip(LEVELS, weights, strict=True)}


def actor(level: str, priority: int) -> dramatiq.Actor:
    def push(task: str, seq: int, body: str) -> None:
        handler.work(task, seq, level)

    return dramatiq.actor(push, actor_name=f"push_{level}", queue_name=level, priority=priority)


actors = {level: actor(level, priority) for level, priority in priorities().items()}


def send(task: str, level: str, pushes: int) -> None:
    for seq in range(1, pushes + 1):
        actors[level].send(task, seq, BODY)


if __name__ == "__main__":
    follow(send)
