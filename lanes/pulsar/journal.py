"""The registry's durable record: a compacted topic that keeps the last body of every key.

An empty body is Pulsar's tombstone: a compaction drops the key and the tombstone. Messages that
compactions have read are trimmed later, a closed ledger at a time (`lanes.pulsar.policies`).
"""

from __future__ import annotations

import asyncio
import time

import _pulsar

from pushlane.lanes.errors import PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.lanes.ports import Journal
from pushlane.lanes.pulsar.admin import Admin, make_subscription, topic_path
from pushlane.lanes.pulsar.connection import OPERATION_TIMEOUT_S, Connection, ignore
from pushlane.lanes.pulsar.vendor_errors import failure

_TOPIC = "tasks"
_COMPACTION = "__compaction"  # as the broker calls it
_IN_FLIGHT = 256
_LATE_S = 1.0


class PulsarJournal(Journal):
    def __init__(self, connection: Connection, admin: Admin, namespace: str) -> None:
        self._connection = connection
        self._admin = admin
        self._namespace = namespace
        self._topic = f"persistent://{namespace}/{_TOPIC}"
        self._producer: _pulsar.Producer | None = None
        self._opening = asyncio.Lock()
        self._in_flight = 0
        self._lost_at_s = 0.0
        self._room = asyncio.Semaphore(_IN_FLIGHT)

    async def open(self) -> None:
        """Make the topic when it is missing, with the cursor that its compactions go by.

        The cursor holds back messages that they have not read. A broker makes it only once it has
        heard of the namespace's threshold; without it, messages over the retention are trimmed
        unread.
        """
        path = topic_path(self._namespace, _TOPIC)
        await self._admin.insist("PUT", path, "make the journal", allow=(409,))
        await make_subscription(self._admin, path, _COMPACTION, "make the journal")

    async def append(self, key: str, body: bytes) -> None:
        try:
            await self._append(key, body)
        except (UnknownLane, TaskConflict) as error:  # the journal is no lane, and is shared
            raise Unreachable(f"the journal cannot be written: {error}") from error

    async def _append(self, key: str, body: bytes) -> None:
        producer = await self._open_producer()
        builder = _pulsar.MessageBuilder()
        builder.partition_key(key)
        builder.content(body)
        message = builder.build()
        async with self._room:
            self._in_flight += 1
            try:
                await self._connection.call(
                    "write the journal", lambda done: producer.send_async(message, done)
                )
            finally:
                self._in_flight -= 1

    async def replay(self) -> list[tuple[str, bytes]]:
        # In a thread: reading one message after the other is the client's only blocking call.
        return await asyncio.to_thread(self._read_all)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            await self._connection.call("close the journal", producer.close_async)
        except PushlaneError:  # the broker is away: it let go by itself
            return

    async def _open_producer(self) -> _pulsar.Producer:
        async with self._opening:
            self._let_go_of_lost()
            if self._producer is None:
                configuration = _pulsar.ProducerConfiguration()
                configuration.batching_enabled(False)  # a change is durable at once, not in 10 ms
                # Only of what is compressed does the client tell the size of the body; without it
                # the compaction takes the headers of a tombstone for a body, and keeps it for ever.
                configuration.compression_type(_pulsar.CompressionType.LZ4)
                configuration.send_timeout_millis(OPERATION_TIMEOUT_S * 1000)
                start = self._connection.raw.create_producer_async
                self._producer = await self._connection.open(
                    self._topic,
                    "open the journal",
                    lambda done: start(self._topic, configuration, done),
                    discard=lambda late: late.close_async(ignore),
                )
            return self._producer

    def _let_go_of_lost(self) -> None:
        """Close a lost producer, since the client may wait a minute until it connects it again.

        Messages in flight may still get through when the loss is a short one.
        """
        if self._producer is None or self._producer.is_connected():
            self._lost_at_s = 0.0
            return
        self._lost_at_s = self._lost_at_s or time.monotonic()
        if self._in_flight and time.monotonic() - self._lost_at_s < _LATE_S:
            return
        self._connection.is_away = True
        lost, self._producer = self._producer, None
        lost.close_async(ignore)

    def _read_all(self) -> list[tuple[str, bytes]]:
        try:
            try:
                found = self._read_once()
            except _pulsar.Timeout:
                # Perhaps it waited for a last tombstone that a compaction has dropped meanwhile.
                found = self._read_once()
        except _pulsar.PulsarException as error:
            result = getattr(_pulsar.Result, type(error).__name__, _pulsar.Result.UnknownError)
            raise failure(result, self._connection.url, "read the journal") from error
        return [(key, body) for key, body in found.items() if body]

    def _read_once(self) -> dict[str, bytes]:
        reader = self._open_reader()
        try:
            return _latest(reader)
        finally:
            reader.close()

    def _open_reader(self) -> _pulsar.Reader:
        configuration = _pulsar.ReaderConfiguration()
        configuration.read_compacted(True)
        return self._connection.raw.create_reader(
            self._topic, _pulsar.MessageId.earliest, configuration
        )


def _latest(reader: _pulsar.Reader) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    while reader.has_message_available():
        message = reader.read_next(OPERATION_TIMEOUT_S * 1000)
        found.pop(message.partition_key(), None)
        found[message.partition_key()] = message.data()
    return found
