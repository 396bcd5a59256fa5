"""Tells a message that has come twice to one consumer from one that is to be delivered.

After a broken connection the broker sends all unacked messages again, while the client still holds
those that it had prefetched: without this, each of those would go out twice. A message that another
consumer had before is never held back.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import _pulsar
import msgspec

if TYPE_CHECKING:
    from pushlane.backends.pulsar.reader import PulsarReader

MOST = 32_768


class MessageHandle(msgspec.Struct, gc=False):
    """A message that a reader has given out, None once it is acked; `name` is its id.

    The reader's consumer may be another one after the connection was lost.
    """

    reader: PulsarReader
    name: bytes
    message: _pulsar.Message | None

    def ack(self) -> None:
        """Hand the ack to the client, which sends it within 100 ms. Never blocks."""
        message = self.message
        if message is not None:
            self.message = None
            acknowledge(self.reader, message)


class RedeliveryFilter:
    """Remembers messages that were given out, of all lanes: the unacked, and the last acked.

    It begins to forget acked ones, and those of closed readers, when there are more than `most`.
    `dropped` counts those that came again.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.dropped = 0
        self._holds: dict[bytes, MessageHandle] = {}
        self._names: deque[bytes] = deque()  # oldest first: a dict is slow to find its first

    def hold(self, reader: PulsarReader, message: _pulsar.Message) -> MessageHandle | None:
        """Return a handle to deliver the message, or None when this reader gave it out before.

        If that one is acked already, its ack may have been lost with the connection: it is sent
        again. If not, it will be.
        """
        name = message.message_id().serialize()
        known = self._holds.get(name)
        if known is not None and known.reader is reader:
            if known.message is None:
                acknowledge(reader, message)
            self.dropped += 1
            return None
        hold = self._holds[name] = MessageHandle(reader, name, message)
        self._names.append(name)
        for _ in range(2):  # else acked ones would pile up behind those that are not
            self._forget_spent()
        return hold

    def _forget_spent(self) -> None:
        """Forget the oldest if it is acked, or its reader closed; else have it wait once more."""
        if len(self._names) <= self._most:
            return
        name = self._names.popleft()
        known = self._holds.get(name)  # None: it had come twice
        if known is None or known.message is None or known.reader.closed:
            self._holds.pop(name, None)
        else:
            self._names.append(name)

    def clear(self) -> None:
        self._holds.clear()
        self._names.clear()


def acknowledge(reader: PulsarReader, acked: _pulsar.Message) -> None:
    with suppress(_pulsar.PulsarException):  # its reader is closed: the message comes again
        reader.acknowledge(acked)
