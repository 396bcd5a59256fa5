"""Tells a message that has come twice to one consumer from one that is to be delivered.

After a broken connection the broker sends all again that is not acked, while the client still holds
what it had prefetched: without this, each of those would go out twice. What another consumer had
before is never held back.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

import _pulsar
import msgspec

MOST = 32_768


class Hold(msgspec.Struct, gc=False):
    """A message that a consumer has given out, None once it is acked; `name` is its id."""

    consumer: _pulsar.Consumer
    name: bytes
    message: _pulsar.Message | None

    @property
    def entry(self) -> tuple[int, int]:
        """The ledger and entry that it came in: a batch is one entry."""
        message_id = _pulsar.MessageId.deserialize(self.name)
        return message_id.ledger_id(), message_id.entry_id()

    def ack(self) -> None:
        """Hand the ack to the client, which sends it within 100 ms. Never blocks."""
        if self.message is not None:
            message, self.message = self.message, None
            _acknowledge(self.consumer, message)


class Recent:
    """The last messages that were given out, of all lanes: at most `most`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._holds: OrderedDict[bytes, Hold] = OrderedDict()  # a dict finds its first slowly

    def hold(self, consumer: _pulsar.Consumer, message: _pulsar.Message) -> Hold | None:
        """The message as one to deliver, or None when this consumer gave it out before.

        If that one is acked already, its ack may have been lost with the connection: it is sent
        again. If not, it will be.
        """
        name = message.message_id().serialize()
        known = self._holds.pop(name, None)
        if known is not None and known.consumer is consumer:
            self._holds[name] = known
            if known.message is None:
                _acknowledge(consumer, message)
            return None
        hold = self._holds[name] = Hold(consumer, name, message)
        if len(self._holds) > self._most:
            self._holds.popitem(last=False)
        return hold

    def clear(self) -> None:
        self._holds.clear()


def _acknowledge(consumer: _pulsar.Consumer, message: _pulsar.Message) -> None:
    with suppress(_pulsar.PulsarException):  # its reader is closed: the message comes again
        consumer.acknowledge(message)
