"""Tells a message that has come twice to one consumer from one that is to be delivered.

After a broken connection the broker sends all unacked messages again, while the client still holds
those that it had prefetched: without this, each of those would go out twice. A message that another
consumer had before is never held back.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import _pulsar
import msgspec

MOST = 32_768


class Acker(Protocol):
    """A reader, whose consumer may be another one after the connection was lost."""

    def acknowledge(self, acked: _pulsar.Message) -> None: ...


class MessageHandle(msgspec.Struct, gc=False):
    """A message that a consumer has given out, None once it is acked; `name` is its id."""

    consumer: Acker
    name: bytes
    message: _pulsar.Message | None

    def ack(self) -> None:
        """Hand the ack to the client, which sends it within 100 ms. Never blocks."""
        message = self.message
        if message is not None:
            self.message = None
            acknowledge(self.consumer, message)


class RedeliveryFilter:
    """Remembers the last messages that were given out, of all lanes: at most `most`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._holds: dict[bytes, MessageHandle] = {}
        self._names: deque[bytes] = deque()  # oldest first: a dict is slow to find its first

    def hold(self, consumer: Acker, message: _pulsar.Message) -> MessageHandle | None:
        """Return a handle to deliver the message, or None when this consumer gave it out before.

        If that one is acked already, its ack may have been lost with the connection: it is sent
        again. If not, it will be.
        """
        name = message.message_id().serialize()
        known = self._holds.get(name)
        if known is not None and known.consumer is consumer:
            if known.message is None:
                acknowledge(consumer, message)
            return None
        hold = self._holds[name] = MessageHandle(consumer, name, message)
        self._names.append(name)
        if len(self._names) > self._most:
            self._holds.pop(self._names.popleft(), None)  # None: it had come twice
        return hold

    def clear(self) -> None:
        self._holds.clear()
        self._names.clear()


def acknowledge(consumer: Acker, acked: _pulsar.Message) -> None:
    try:
        consumer.acknowledge(acked)
    except _pulsar.PulsarException:  # its reader is closed: the message comes again
        return
