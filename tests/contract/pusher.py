"""An application that pushes 1, 2, 3 … until it is killed, and says which of them must arrive.

python -m tests.contract.pusher SPOOL FIRST [keyed | ordered]      (settings from the environment)

With `keyed` each push has its number as its key, too. With `ordered` pushes go in three orders, by
their numbers modulo 3.
"""

from __future__ import annotations

import itertools
import sys

from pushlane.core.task import Level
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer

_FLUSH_EVERY = 50


def push(spool: str, first: int, *, keyed: bool, ordered: bool) -> None:
    options = ProducerOptions(linger_s=0.001)
    with Producer(
        "events", level=Level.HIGH, ordered=ordered, spool=spool, options=options
    ) as producer:
        for number in itertools.count(first):
            order = str(number % 3) if ordered else None
            producer.push(str(number), key=str(number) if keyed else None, ordered_by=order)
            if number % _FLUSH_EVERY == 0 and producer.flush():
                print(number, flush=True)


if __name__ == "__main__":
    words = sys.argv[3:]
    push(sys.argv[1], int(sys.argv[2]), keyed="keyed" in words, ordered="ordered" in words)
