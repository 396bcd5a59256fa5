"""Hands acks to the client: one for a whole batch that is acked within 20 ms, else one a message.

The client sends every ack of a message by itself and with the state of its whole batch, and the
broker works through each of them: on a fast lane that costs both more than the messages did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import _pulsar
import msgspec

from lanes.pulsar.recent import Hold, acknowledge

WAIT_S = 0.02

# A serialized id of a batch of up to 127 ends in: tag of the index, index, tag of the size, size.
_TAIL = 4
_INDEX_TAG = 0x20
_SIZE_TAG = 0x30


def left_of_batch(name: bytes) -> int:
    """How many messages come after the one with this serialized id in its batch."""
    if len(name) < _TAIL or name[-4] != _INDEX_TAG or name[-2] != _SIZE_TAG:
        return 0
    return name[-1] - name[-3] - 1


class _Batch(msgspec.Struct, gc=False):
    """What is acked of a batch; `missing` has a bit for each message that is not."""

    since_s: float
    missing: int
    holds: list[Hold]


class Acks:
    """The acks of a process that still wait for the rest of their batch."""

    def __init__(self) -> None:
        self._batches: dict[bytes, _Batch] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, holds: Iterable[Hold]) -> None:
        """Each is acked now, or within `WAIT_S`. Never blocks."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        batches = self._batches
        for hold in holds:
            name = hold.name
            if len(name) < _TAIL or name[-4] != _INDEX_TAG or name[-2] != _SIZE_TAG:
                hold.ack()
                continue
            entry = name[:-_TAIL]
            batch = batches.get(entry)
            if batch is None:
                batch = batches[entry] = _Batch(now_s, (1 << name[-1]) - 1, [])
            batch.holds.append(hold)
            batch.missing &= ~(1 << name[-3])
            if not batch.missing:
                del batches[entry]
                _ack_whole(batch.holds)
        if batches and self._timer is None:
            self._timer = loop.call_later(WAIT_S, self._send_late)

    def send(self) -> None:
        """Send all: a consumer is about to close, or the client."""
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            _ack_each(batch.holds)

    def _send_late(self) -> None:
        """What has waited long enough goes as it is; batches stand in the order they came in."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._timer = None
        for entry, batch in list(self._batches.items()):
            if batch.since_s + WAIT_S > now_s:
                self._timer = loop.call_at(batch.since_s + WAIT_S, self._send_late)
                break
            del self._batches[entry]
            _ack_each(batch.holds)


def _ack_each(holds: Iterable[Hold]) -> None:
    for hold in holds:
        hold.ack()


def _ack_whole(holds: list[Hold]) -> None:
    """An id without an index stands for all of its batch."""
    first = holds[0]
    if first.message is None:
        _ack_each(holds)
        return
    found = first.message.message_id()
    acknowledge(first.consumer, _pulsar.MessageId(-1, found.ledger_id(), found.entry_id(), -1))
    for hold in holds:
        hold.message = None
