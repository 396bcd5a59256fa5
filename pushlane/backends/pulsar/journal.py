"""The registry's durable record: a compacted topic that keeps the last body of every key.

An empty body is Pulsar's tombstone: a compaction drops the key and the tombstone. Messages that
compactions have read are trimmed later, a closed ledger at a time (`backends.pulsar.policies`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import _pulsar

from pushlane.backends.ports import Journal, JournalPage
from pushlane.backends.pulsar.admin import Admin, make_subscription, make_topic, topic_path
from pushlane.backends.pulsar.broker import Producers
from pushlane.backends.pulsar.connection import OPERATION_TIMEOUT_S, Connection
from pushlane.backends.pulsar.replay import PAGE, blocking, open_reader
from pushlane.core.errors import TaskConflict, UnknownLane, Unreachable

TOPIC = "tasks"
COMPACTION = "__compaction"  # as the broker calls it

_DOING = "read the task topic"
_FOLLOWING_S = 1.0  # as long as the next message is waited for that the broker says to have
_PAGE_S = 1.0  # a page that takes longer ends early: whoever waits for it sees that it goes on


class PulsarJournal(Journal):
    def __init__(self, connection: Connection, admin: Admin, namespace: str) -> None:
        self._connection = connection
        self._admin = admin
        self._namespace = namespace
        self._topic = f"persistent://{namespace}/{TOPIC}"
        # Only of what is compressed does the client tell the size of the body; without it the
        # compaction takes the headers of a tombstone for a body, and keeps it for ever.
        lz4 = _pulsar.CompressionType.LZ4
        self._producers = Producers(connection, namespace, lz4, doing="write the task topic")
        self._is_made = False
        self._making = asyncio.Lock()

    async def open(self) -> None:
        """Make the topic when it is missing, before it is first used: most commands do not."""
        async with self._making:
            if not self._is_made:
                await make_journal(self._admin, self._namespace)
                self._is_made = True

    async def append(self, key: str, body: bytes) -> None:
        await self.open()
        try:
            await self._producers.publish(TOPIC, [body], key=key)
        except (UnknownLane, TaskConflict) as error:  # the journal is no lane, and is shared
            raise Unreachable(f"the task topic cannot be written: {error}") from error

    async def pages(self) -> AsyncGenerator[JournalPage, None]:
        """See `Journal.pages`. What does not end is read once more, from its beginning."""
        for is_again in (False, True):
            try:
                async with aclosing(self._pages()) as pages:
                    async for page in pages:
                        yield page
                return
            except Unreachable as error:
                # Perhaps it waited for a last tombstone that a compaction has dropped meanwhile.
                if is_again or not isinstance(error.__cause__, _pulsar.Timeout):
                    raise

    async def follow(self, after: bytes) -> AsyncGenerator[JournalPage, None]:
        """See `Journal.follow`. What a compaction has dropped of what is behind is not read."""
        await self.open()
        start = _pulsar.MessageId.deserialize(after) if after else _pulsar.MessageId.earliest
        reader = await blocking(
            self._connection, _DOING, lambda: self._open_reader(start, inclusive=not after)
        )
        wait_ms = round(_FOLLOWING_S * 1000)
        try:
            while True:
                page = await blocking(self._connection, _DOING, lambda: _page(reader, wait_ms))
                after = page.position or after
                yield page._replace(position=after)
        finally:
            await blocking(self._connection, _DOING, reader.close)

    async def replay(self) -> list[tuple[str, bytes]]:
        """Return every key that was not removed, with its last body, oldest append first."""
        found: dict[str, bytes] = {}
        async for page in self.pages():
            if page.is_first:
                found.clear()
            for key, body in page.records:
                found.pop(key, None)
                found[key] = body
        return [(key, body) for key, body in found.items() if body]

    async def close(self) -> None:
        await self._producers.close_lane(TOPIC)

    async def _pages(self) -> AsyncGenerator[JournalPage, None]:
        await self.open()
        earliest, wait_ms = _pulsar.MessageId.earliest, OPERATION_TIMEOUT_S * 1000
        reader = await blocking(self._connection, _DOING, lambda: self._open_reader(earliest))
        is_first = True
        try:
            while (
                page := await blocking(self._connection, _DOING, lambda: _page(reader, wait_ms))
            ).records or is_first:
                yield page._replace(is_first=is_first)
                is_first = False
        finally:
            await blocking(self._connection, _DOING, reader.close)

    def _open_reader(self, start: _pulsar.MessageId, *, inclusive: bool = True) -> _pulsar.Reader:
        return open_reader(
            self._connection, self._topic, start, compacted=True, inclusive=inclusive
        )


async def make_journal(admin: Admin, namespace: str) -> None:
    """Make the topic when it is missing, with the cursor that its compactions go by.

    The cursor holds back messages that they have not read. A broker makes it only once it has
    heard of the namespace's threshold; without it, messages over the retention are trimmed unread.
    """
    path = topic_path(namespace, TOPIC)
    await make_topic(admin, path, "create the task topic")
    await make_subscription(admin, path, COMPACTION, "create the task topic")


def _page(reader: _pulsar.Reader, wait_ms: int) -> JournalPage:
    """Read some records; none at the end."""
    records: list[tuple[str, bytes]] = []
    position = b""
    until_s = time.monotonic() + _PAGE_S
    while len(records) < PAGE and time.monotonic() < until_s and reader.has_message_available():
        message = reader.read_next(wait_ms)
        records.append((message.partition_key(), message.data()))
        position = message.message_id().serialize()
    return JournalPage(records, position=position)
