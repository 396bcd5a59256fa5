"""A topic of Kafka as a source: a consumer in a thread of its own, which the loop tells what to do.

The thread polls on while partitions are paused, and hands lists of records over by one call each.
Offsets are ours: a partition begins where its position says, never where the group has committed.
What is committed is for Kafka's own tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pushlane.core.errors import Unreachable
from pushlane.ingest.kafka_topic import (
    ASK_S,
    Place,
    Topic,
    as_ours,
    client_log,
    consumer_settings,
    translated,
)
from pushlane.ingest.record import Record
from pushlane.ingest.source import Given, Receiver, SourceChanged
from pushlane.util.errors import Denied
from pushlane.util.threads import Threads

log = logging.getLogger("pushlane.ingest")

T = TypeVar("T")
Command = Callable[[Consumer], object]

_MOST = 1_000
_WAIT_S = 0.02
"""A poll waits for all of `_MOST` messages, or so long."""
_AHEAD = 4
"""So many polls may be on their way to the loop; each is of 1,000 records at most."""
_AGAIN_S = 1.0


class KafkaSource:
    """The partitions of a topic that the group gives to this process."""

    def __init__(self, place: Place, group: str, given: Mapping[str, str]) -> None:
        """Raises BadInput for settings that the client does not have."""
        self.name = place.url
        self._place = place
        self._settings = consumer_settings(place, group, given)
        self._topic = Topic(place, self._settings)
        self._id = ""
        self._thread: _Thread | None = None
        self._is_closed = False

    @property
    def trouble(self) -> str:
        return "" if self._thread is None else self._thread.trouble

    async def run(self, receiver: Receiver) -> None:
        self._id = await self._topic.id()
        if self._is_closed:
            return
        thread = self._thread = _Thread(self._place, self._settings, self._topic, receiver)
        done = asyncio.ensure_future(thread.run())
        try:
            await asyncio.shield(done)
        finally:
            thread.close()
            await asyncio.gather(done, return_exceptions=True)

    def pause(self, partition: str) -> None:
        self._do(lambda consumer: consumer.pause(self._of(partition)))

    def resume(self, partition: str) -> None:
        self._do(lambda consumer: consumer.resume(self._of(partition)))

    def seek(self, partition: str, offset: int) -> None:
        if self._thread is not None:
            self._thread.seek(partition, offset)

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit, after a look whether it is the same topic still. Raises SourceChanged, too.

        A topic that was made anew is read on without an error once it is long enough: nothing but
        its id tells.
        """
        if self._thread is None:
            return
        now = await self._topic.id()
        if now != self._id:
            raise SourceChanged(
                f"{self.name} was recreated while it was read: its offsets start again, and "
                "would be mistaken for known ones. If that was intended, start over with: "
                "pushlane ingest reset STREAM"
            )
        self._thread.trouble = ""
        committed = self._thread.committed
        changed = {name: at for name, at in offsets.items() if committed.get(name) != at}
        self._do(self._thread.look_at_ends)
        if changed:
            there = [TopicPartition(self._place.topic, int(n), at) for n, at in changed.items()]
            self._do(lambda consumer: consumer.commit(offsets=there, asynchronous=True))
            committed |= changed

    async def offset_at(self, partition: str, at_ms: int) -> int:
        asked = asyncio.get_running_loop().create_future()
        where = [TopicPartition(self._place.topic, int(partition), at_ms)]

        def ask(consumer: Consumer) -> None:
            [found] = consumer.offsets_for_times(where, timeout=ASK_S)
            if found.error is not None:  # as while a leader changes: no offset is the end then
                raise KafkaException(found.error)
            end = consumer.get_watermark_offsets(where[0], timeout=ASK_S)[1]
            at = found.offset if found.offset >= 0 else end
            asked.get_loop().call_soon_threadsafe(tell, at)

        def tell(at: int) -> None:
            if not asked.done():
                asked.set_result(at)

        self._do(ask)
        try:
            async with asyncio.timeout(2 * ASK_S):
                return int(await asked)
        except TimeoutError as error:
            raise Unreachable(
                f"{self.name} has not answered with the offset of that time"
            ) from error

    async def ends(self) -> Mapping[str, int]:
        return {} if self._thread is None else dict(self._thread.ends)

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None:
            self._thread.close()

    def _do(self, command: Command) -> None:
        if self._thread is not None:
            self._thread.commands.put(command)

    def _of(self, partition: str) -> list[TopicPartition]:
        return [TopicPartition(self._place.topic, int(partition))]


class _Thread:
    """The thread that has the consumer; all methods but the first few are its own."""

    def __init__(
        self, place: Place, settings: Mapping[str, Any], topic: Topic, receiver: Receiver
    ) -> None:
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self.trouble = ""
        self.ends: dict[str, int] = {}
        self.committed: dict[str, int] = {}
        self._place = place
        self._settings = dict(settings)
        self._topic = topic
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._closed = threading.Event()
        self._room = threading.Semaphore(_AHEAD)
        self._begun: dict[int, int] = {}  # of this poll: they begin, at these offsets
        self._names: dict[int, str] = {}
        self._failure: Exception | None = None
        self._consumer: Consumer

    async def run(self) -> None:
        """Read until `close`, and until all is given back. Raises what went wrong."""
        threads = Threads(1, "kafka")
        try:
            await threads.run(self._run)
        finally:
            threads.close()

    def close(self) -> None:
        self._closed.set()

    def seek(self, partition: str, offset: int) -> None:
        """Go on elsewhere; called on the loop."""

        def go(_: Consumer) -> None:
            self._go_to(int(partition), offset)
            self._loop.call_soon_threadsafe(self._receiver.sought, partition)

        self.commands.put(go)

    def _run(self) -> None:
        own = {"error_cb": self._on_trouble, "on_commit": self._on_commit}
        with translated(self._place):
            self._consumer = Consumer({**self._settings, **own}, logger=client_log)
            self._consumer.subscribe(
                [self._place.topic],
                on_assign=self._kept(self._on_assign),
                on_revoke=self._kept(self._on_revoke),
                on_lost=self._kept(self._on_lost),
            )
            try:
                while not self._closed.is_set() and self._failure is None:
                    self._obey()
                    self._begun.clear()
                    self._pass_on(self._consumer.consume(_MOST, _WAIT_S))
            finally:
                self._consumer.close()
        if self._failure is not None:
            raise self._failure

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        if error is not None:  # as while a rebalance goes on: the next one has it
            client_log.debug("not committed: %s", error.str())
            self.committed.clear()

    def _kept(
        self, action: Callable[[Sequence[TopicPartition]], None]
    ) -> Callable[[Consumer, list[TopicPartition]], None]:
        """Return a callback of the client that keeps what goes wrong for `_run` to raise."""

        def callback(_: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                action(partitions)
            except Exception as error:  # noqa: BLE001 - it is raised by `_run`
                self._failure = self._failure or error

        return callback

    def _obey(self) -> None:
        """Do what the loop has asked for since; what is of partitions that are gone is nothing."""
        with contextlib.suppress(Empty):
            while True:
                command = self.commands.get_nowait()
                try:
                    command(self._consumer)
                except KafkaException as error:
                    client_log.info("not done: %s", error.args[0].str())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do something, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:  # as a rebalance begins and ends for who gets nothing by it
            return
        starts = self._given([found.partition for found in partitions])
        there = [TopicPartition(self._place.topic, n, at) for n, at in starts.items()]
        self._consumer.incremental_assign(there)
        self._consumer.resume(there)
        self._begun |= starts

    def _given(self, numbers: Iterable[int]) -> dict[int, int]:
        """Tell of new partitions; return where each begins."""
        topic_id = self._asked(self._topic.id_now)
        found = [self._look(number, topic_id) for number in numbers]
        starts = self._call(_awaited(self._receiver.given(found)))
        return {int(one.partition): max(one.low, starts[one.partition]) for one in found}

    def _look(self, number: int, topic_id: str) -> Given:
        where = TopicPartition(self._place.topic, number)
        low, high = self._asked(lambda: self._consumer.get_watermark_offsets(where, timeout=ASK_S))
        name = self._names.setdefault(number, str(number))
        self.ends[name] = high
        return Given(name, topic_id, low, high)

    def look_at_ends(self, consumer: Consumer) -> None:
        """Take the ends that the client has heard of with what it has fetched."""
        for name in list(self.ends):  # the loop changes it, too
            where = TopicPartition(self._place.topic, int(name))
            end = consumer.get_watermark_offsets(where, cached=True)[1]
            self._saw(name, end)

    def _saw(self, name: str, end: int) -> None:
        if (was := self.ends.get(name)) is not None:
            self.ends[name] = max(was, end)

    def _go_to(self, number: int, offset: int) -> None:
        """Go on with this offset of a partition, if it is still ours.

        Raises what ends the thread: a partition that is nowhere would not be read for ever.
        """
        where = TopicPartition(self._place.topic, number, offset)
        if self._names[number] not in self.ends:
            return
        try:
            self._consumer.seek(where)
        except KafkaException:  # it fetches nothing now, as behind an offset that is out of range
            with translated(self._place):
                self._consumer.incremental_unassign([where])
                self._consumer.incremental_assign([where])

    def _asked(self, question: Callable[[], T]) -> T:
        """Ask again until the brokers answer, or all is closed."""
        while True:
            try:
                with translated(self._place):
                    return question()
            except Unreachable as error:
                if self._closed.is_set():
                    raise
                log.warning("waiting: %s", error, extra={"action": "ingest_waits"})
                self._closed.wait(_AGAIN_S)

    def _on_revoke(self, partitions: Sequence[TopicPartition]) -> None:
        done = self._taken_away([found.partition for found in partitions])
        if done:
            there = [TopicPartition(self._place.topic, int(n), at) for n, at in done.items()]
            try:
                self._consumer.commit(offsets=there, asynchronous=False)
            except KafkaException as error:  # positions have it; only Kafka's tools do not
                told = "offsets of finished records are not committed: %s"
                log.warning(told, error.args[0].str(), extra={"action": "ingest_not_committed"})
        self._consumer.incremental_unassign(list(partitions))

    def _taken_away(self, numbers: Iterable[int]) -> Mapping[str, int]:
        """Bring what is in progress to its end; return what to commit."""
        names = [self._names.setdefault(number, str(number)) for number in numbers]
        done: Mapping[str, int] = self._call(_awaited(self._receiver.let_go(names)))
        self._obey()  # no command is left for who gets the partition next
        for name in names:
            self.ends.pop(name, None)
        return done

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        names = [str(found.partition) for found in partitions]
        log.warning(
            "partitions %s are lost: this process was silent for too long, or the topic is gone",
            ", ".join(names),
            extra={"action": "ingest_partitions_lost"},
        )
        self._loop.call_soon_threadsafe(self._receiver.lost, names)
        for name in names:
            self.ends.pop(name, None)
        self._consumer.incremental_unassign(list(partitions))

    def _pass_on(self, messages: Sequence[Message]) -> None:
        """Give records to the loop; look at errors, which come as messages, too."""
        batches: dict[int, list[Record]] = {}
        errors: list[Message] = []
        for message in messages:
            if message.error() is not None:
                errors.append(message)
                continue
            record = self._record(message)
            number = message.partition()
            assert number is not None
            if (batch := batches.get(number)) is None:
                batch = batches[number] = []
            batch.append(record)
        for number in self._begun.keys() & batches.keys():  # some may be of before they were given
            del batches[number]
            self._go_to(number, self._begun[number])
        if batches:
            self.trouble = ""
            self._hand_over(batches)
        for message in errors:
            self._on_error(message)

    def _record(self, message: Message) -> Record:
        number, offset = message.partition(), message.offset()
        assert number is not None
        assert offset is not None
        kind, at_ms = message.timestamp()
        headers: Any = message.headers() or ()
        value: Any = message.value()
        key: Any = message.key()
        return Record(self._names[number], offset, value, key, at_ms if kind else 0, headers)

    def _hand_over(self, batches: Mapping[int, list[Record]]) -> None:
        while not self._room.acquire(timeout=_AGAIN_S):
            if self._closed.is_set():  # they are read again
                return

        def take() -> None:
            self._room.release()
            for number, records in batches.items():
                name = self._names[number]
                self._saw(name, records[-1].offset + 1)
                self._receiver.take(name, records)

        self._loop.call_soon_threadsafe(take)

    def _on_error(self, message: Message) -> None:
        error, number = message.error(), message.partition()
        assert error is not None
        code = error.code()
        if code == KafkaError._AUTO_OFFSET_RESET and number is not None:
            self._begin_again(number)
        elif code == KafkaError._LOG_TRUNCATION:
            raise SourceChanged(
                f"partition {number} of {self._place.url} was cut off behind what was read: "
                f"{error.str()}. Its offsets would be mistaken for known ones; if that was "
                "intended, start over with: pushlane ingest reset STREAM"
            )
        else:
            self._on_trouble(error)

    def _begin_again(self, number: int) -> None:
        """Look what there is where an offset is out of range; go on, or stop, as at a start."""
        self._taken_away([number])
        for partition, start in self._given([number]).items():
            self._go_to(partition, start)
            self._consumer.resume([TopicPartition(self._place.topic, partition)])

    def _on_trouble(self, error: KafkaError) -> None:
        found = as_ours(self._place, error)
        is_denied = isinstance(found, Denied) and error.code() != KafkaError._SSL  # as a restart is
        if isinstance(found, Unreachable) and not is_denied:  # the client tries again by itself
            self.trouble = str(found)
            log.warning("%s", found, extra={"action": "ingest_waits"})
        else:
            self._failure = self._failure or found


async def _awaited(work: Any) -> Any:
    """Wait for what may be any awaitable: a thread can only hand over a coroutine."""
    return await work
