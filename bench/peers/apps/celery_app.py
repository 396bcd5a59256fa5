"""Celery on Redis: a queue a level, served in turn. It has no weights.

As its documentation advises for long tasks: a prefetch multiplier of 1, acks after the work, no
results; 50 threads in one process. `python celery_app.py` feeds it.
"""

from __future__ import annotations

import os

import handler
from celery import Celery
from orders import BODY, follow

LEVELS = ("high", "medium", "low")

app = Celery("peers", broker=os.environ["PEERS_REDIS"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_default_queue="high",
)


@app.task(name="push")
def push(task: str, seq: int, level: str, body: str) -> None:
    handler.work(task, seq, level)


def send(task: str, level: str, pushes: int) -> None:
    with app.producer_or_acquire() as producer:
        for seq in range(1, pushes + 1):
            push.apply_async((task, seq, level, BODY), queue=level, producer=producer)


if __name__ == "__main__":
    follow(send)
