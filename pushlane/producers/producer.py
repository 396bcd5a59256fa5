"""The producer by which an application sends pushes one at a time, as they happen.

Calls return at once: pushes are numbered, buffered, spooled if there is a spool, and sent by a
thread of the producer's own. It never delivers anything. What a dispatcher could not read is
refused before it takes a seq.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from prometheus_client.registry import Collector

from pushlane.backends.backend import Connect
from pushlane.core.errors import BadInput, MalformedPush, PushlaneError, Unreachable
from pushlane.core.push import MAX_PUSH_BYTES, Push, decode, encode
from pushlane.core.task import DeliveryMode, Level, OnUnknown, Task, now_ms
from pushlane.model.stop_rule import OFF
from pushlane.model.times import FIRST_MS, LAST_MS
from pushlane.producers.columns import checked, given_addresses
from pushlane.producers.outbox.background import OutboxThread
from pushlane.producers.outbox.buffer import PRODUCER_METRICS, Encode, ProducerStats
from pushlane.producers.outbox.sender import KEYS_WAIT
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import Added, BatchStore, Header, MemoryStore, ProducerOptions
from pushlane.producers.payloads import given_payloads
from pushlane.producers.task_builder import new_task
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.validate import NOTHING
from pushlane.settings import Settings, load
from pushlane.settings.payload_limits import PayloadLimits, payload_limits
from pushlane.util.conversion import instance, moment_ms, path, seconds, shown
from pushlane.util.errors import OversizedPush
from pushlane.util.metrics import MetricCollector

MAX_KEY = 200
"""Characters of the key of a push."""


class Content(NamedTuple):
    """The fields of a push as an application gives them; an expiry of 0 means never."""

    recipient: str
    title: str
    body: str
    data: Mapping[str, Any] | None
    expires_at_ms: int | datetime | timedelta | str
    attributes: Mapping[str, str] | None = None
    trace_id: str = ""
    address: str | Mapping[str, Any] | None = None
    payload: Mapping[str, Any] | None = None
    key: str | None = None

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to show or to read in it."""
        return not (self.title or self.body or self.data or self.payload)


def encoder(task: Task, limits: PayloadLimits, content: Content) -> Encode:
    """Return a function from the seq to the bytes; it raises BadInput for what cannot travel.

    So does this for no recipient, data that is no mapping, labels out of bounds, or an address or
    payload for no sink of the task, whose `limits` the push has to keep.
    """
    if not isinstance(content.recipient, str) or not content.recipient.strip():
        raise BadInput("a push has no recipient; give a text that is not empty")
    if not isinstance(content.data, Mapping | None):
        raise BadInput(f"the data of a push is a {type(content.data).__name__}, not a mapping")
    recipient, submitted_at_ms = content.recipient.strip(), now_ms()
    expires_at_ms = _expiry_ms(content.expires_at_ms, submitted_at_ms)
    data = dict(content.data) if content.data is not None else None
    attributes = checked(content.attributes, content.trace_id)
    addresses = given_addresses(content.address, task.chain)
    payloads = given_payloads(content.payload, task.chain)
    key = _key(content.key)

    def encode_push(seq: int) -> bytes:
        push = Push(
            task.id,
            seq,
            recipient,
            content.title,
            content.body,
            data,
            expires_at_ms,
            submitted_at_ms,
            attributes=attributes,
            trace_id=content.trace_id,
            addresses=addresses,
            payloads=payloads,
            key=key,
        )
        return _encoded(limits, push)

    return encode_push


def _key(given: Any) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        raise BadInput(f"the key of a push is of the type {type(given).__name__}, not a text")
    if not given.strip() or len(given) > MAX_KEY:
        what = f"has {len(given):,} characters" if given.strip() else "is blank"
        raise BadInput(
            f"the key of a push {what}; give a text of 1 to {MAX_KEY} characters, such as "
            "order-7-paid, or leave it out"
        )
    return given


def _expiry_ms(given: Any, now_ms: int) -> int:
    expires_at_ms = moment_ms("expires_at_ms", given, now_ms)
    if expires_at_ms and not FIRST_MS <= expires_at_ms <= LAST_MS:
        raise BadInput(
            f"expires_at_ms is {shown(expires_at_ms)}, which is not from the years 2001 to 3000; "
            "give Unix milliseconds, or 0 for never"
        )
    return expires_at_ms


def _encoded(limits: PayloadLimits, push: Push) -> bytes:
    try:
        body = encode(push)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            "a push holds text that is not UTF-8, or data that JSON cannot hold"
        ) from error
    if len(body) > MAX_PUSH_BYTES:
        raise OversizedPush(
            f"a push has {len(body):,} bytes, over the limit of {MAX_PUSH_BYTES:,}; shorten its "
            "body, data or payload"
        )
    if excess := limits.excess(push, len(body)):
        raise OversizedPush(f"a push has {excess}; shorten its body, data or payload")
    try:
        decode(body)
    except MalformedPush as error:
        raise BadInput(
            "a push holds a value of the wrong type: title and body are texts, and data maps texts "
            "to values"
        ) from error
    return body


log = logging.getLogger("pushlane.producer")

_EXIT_S = 5.0
"""Longest wait at the interpreter's exit until all is sent."""


class _AtExit:
    """Calls a function as the interpreter exits, unless cancelled.

    The function may use threads still: `atexit` comes after the pools of `concurrent.futures` are
    shut, and so they have a hook of their own, which is used here too.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call
        register = getattr(threading, "_register_atexit", atexit.register)
        register(self._run)

    def cancel(self) -> None:
        self._call = None

    def _run(self) -> None:
        if self._call:
            self._call()


class Producer:
    """Sends pushes in a task of its own, while it is entered: `with Producer("orders") as it:`.

    `async with` is the same for an event loop, with `apush` and `aflush`. `sink` names where pushes
    go, like `fcm,sms`: what cannot be delivered at the first goes to the next. `stop_if_dead` is
    the share of dead pushes that pauses the task, like `5%`. Without a spool the task is sealed at
    the end. With one, a folder for this producer alone, pushes outlive the process, and the next
    producer of that folder goes on with the same task, until `close(seal=True)`; other options than
    before begin a new one. One that is open at the interpreter's exit is closed then. The first
    push with nothing in it is warned of. Settings are those of `PUSHLANE_*` and `pushlane.toml`
    unless given. Make it after a fork, not before. A test may give it another way to a backend,
    like `MemoryBackend().connect`. Raises BadInput for an option that cannot be.
    """

    def __init__(
        self,
        name: str,
        *,
        level: Level | str = Level.MEDIUM,
        app: str = "default",
        quota: int | str = 1,
        delivery: DeliveryMode | str = DeliveryMode.AT_LEAST_ONCE,
        on_unknown: OnUnknown | str | None = None,
        sink: str | tuple[str, ...] = (),
        stop_if_dead: str = OFF,
        spool: str | Path | None = None,
        options: ProducerOptions | None = None,
        settings: Settings | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._settings = load() if settings is None else instance("settings", settings, Settings)
        bounds = ProducerOptions() if options is None else options
        self._connect = connect
        self._options = instance("options", bounds, ProducerOptions)
        self._spool = None if spool is None else path("spool", spool)
        given: dict[str, Any] = {"level": level, "quota": quota, "sink": sink}
        given |= {"delivery": delivery, "on_unknown": on_unknown}
        given["stop_if_dead"] = OFF if stop_if_dead == "" else stop_if_dead
        self._task_options = TaskOptions(name=name, app=app, **given)
        self._name = self._task_options.name
        self._new_task()  # refuses a bad option at once
        self._limits = payload_limits(self._settings, self._task_options.chain)
        self._folder: SpoolFolder | None = None
        self._store: BatchStore | None = None
        self._background: OutboxThread | None = None
        self._first_seq = 1
        self._pid = 0
        self._at_exit: _AtExit | None = None
        self._told_empty = False

    def open(self) -> Producer:
        """Open the producer; the broker need not be there yet.

        Raises:
            TaskConflict: the spool is used by another producer.
            BadInput: the spool cannot be used as a folder.
        """
        if self._background:
            raise PushlaneError("the producer is open already; make another one")
        self._store = self._spooled(self._spool) if self._spool else MemoryStore(self._header())
        self._first_seq = self._store.next_seq
        self._background = OutboxThread(
            self._settings, self._options, self._store, self._folder, self._connect
        )
        self._pid = os.getpid()
        self._background.start()
        self._at_exit = _AtExit(self._exit)
        return self

    def push(
        self,
        recipient: str,
        *,
        title: str = "",
        body: str = "",
        data: Mapping[str, Any] | None = None,
        expires_at_ms: int | datetime | timedelta | str = 0,
        attributes: Mapping[str, str] | None = None,
        trace_id: str = "",
        address: str | Mapping[str, Any] | None = None,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """Accept a push, from any thread, and return its id; wait `max_block_s` at most.

        Data is what JSON can hold. An expiry is Unix milliseconds from 2001 to 3000, a datetime
        with a zone, a timedelta from now on or a text like `2h`; 0 is never. Attributes (at most
        16, of 256 characters) and trace id are not for the recipient, but for reports. `address` is
        where it goes if that is not its recipient: a text, or one by sink. `payload` is what is
        sent as it is, by sink, under `*` for all others. Of the pushes of an app with the same
        `key` (1 to 200 characters) one is sent within `key_window_s`, a day by default; the others
        end as dropped, and this still returns an id for each.

        Raises:
            BufferFull: neither buffer nor spool had room in that time; the push is not accepted.
            BadInput: no recipient, data that cannot travel, an expiry outside those years, over the
                size limit, or a key while older dispatchers may be there.
            PushlaneError: the producer is not open, or has failed; says why.
        """
        content = Content(
            recipient, title, body, data, expires_at_ms, attributes, trace_id, address, payload, key
        )
        return self._put(self._encoder(content), self._options.max_block_s)

    async def apush(
        self,
        recipient: str,
        *,
        title: str = "",
        body: str = "",
        data: Mapping[str, Any] | None = None,
        expires_at_ms: int | datetime | timedelta | str = 0,
        attributes: Mapping[str, str] | None = None,
        trace_id: str = "",
        address: str | Mapping[str, Any] | None = None,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """Accept a push as `push` does, for an event loop, which goes on meanwhile."""
        content = Content(
            recipient, title, body, data, expires_at_ms, attributes, trace_id, address, payload, key
        )
        encode = self._encoder(content)
        if self._running.buffer.is_full:
            return await asyncio.to_thread(self._put, encode, self._options.max_block_s)
        return self._put(encode, 0.0)

    def flush(self, timeout_s: float | timedelta | str = 30.0) -> bool:
        """Wait until all that was pushed before is on its lane; return whether it is, in that time.

        Raises PushlaneError when the producer is not open, or has failed; says why.
        """
        return self._running.flush(seconds("timeout_s", timeout_s, 0))

    async def aflush(self, timeout_s: float | timedelta | str = 30.0) -> bool:
        """Flush as `flush` does, for an event loop, which goes on meanwhile."""
        return await asyncio.to_thread(self.flush, timeout_s)

    def close(self, *, seal: bool | None = None, timeout_s: float | timedelta | str = 30.0) -> None:
        """Accept no more, and wait at most so long until all is sent. Harmless when repeated.

        What is left then stays in the spool. A sealed task is done once all of it was delivered;
        without a spool it is sealed unless told otherwise. With one, `seal=True` holds even if what
        is left is sent by a later producer. Raises Unreachable when pushes were left that no spool
        holds: they are lost. Says how many.
        """
        within_s = seconds("timeout_s", timeout_s, 0)
        background, store = self._background, self._store
        if background is None or store is None:
            return
        self._background = None
        if self._at_exit:
            self._at_exit.cancel()
        background.buffer.refuse(PushlaneError("the producer is closed"))
        if seal or (seal is None and not self._folder):
            store.seal()
        background.close(within_s)
        if lost := background.buffer.count:
            trouble = background.buffer.trouble or background.trouble or "the broker is slow"
            raise Unreachable(
                f"{lost:,} pushes of task {self.task_id} were not sent in time and are lost: "
                f"{trouble}; give the producer a spool, or close it with a longer timeout_s"
            )

    def stats(self) -> ProducerStats:
        """Return its counts as they are now. This is cheap, and any thread may call it."""
        background, buffer = self._running, self._running.buffer
        spools = list(self._folder.spools) if self._folder else []
        return ProducerStats(
            task_id=self.task_id,
            accepted=buffer.last_seq - self._first_seq + 1,
            sent=background.sent,
            refused=buffer.refused,
            failed_sends=background.failed_sends,
            buffered=buffer.count,
            buffered_bytes=buffer.bytes,
            spooled=sum(spool.waiting for spool in spools),
            spooled_bytes=self._folder.bytes if self._folder else 0,
            lost=self._folder.lost if self._folder else 0,
            corrupt=tuple(self._folder.corrupt) if self._folder else (),
            longest_block_s=buffer.longest_block_s,
            trouble=buffer.trouble or background.trouble,
            enqueue=buffer.enqueue,
        )

    def collector(self) -> Collector:
        """Return its stats for a Prometheus registry: `REGISTRY.register(producer.collector())`."""
        return MetricCollector(PRODUCER_METRICS, lambda: [(self.stats(), (self._name,))])

    @property
    def task_id(self) -> str:
        """The id of the task that its pushes go to."""
        return self._task.id

    def __enter__(self) -> Producer:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Producer:
        return await asyncio.to_thread(self.open)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _exit(self) -> None:
        """Close it as the interpreter exits: at what is lost nobody is left to raise an error."""
        if self._pid != os.getpid():  # it came through a fork
            return
        try:
            self.close(timeout_s=_EXIT_S)
        except PushlaneError as error:
            log.error("producer %s: %s", self._name, error, extra={"action": "producer_exit"})

    @property
    def _task(self) -> Task:
        if self._store is None:
            raise PushlaneError(_NOT_OPEN)
        return self._store.header.task

    @property
    def _running(self) -> OutboxThread:
        if self._background is None:
            raise PushlaneError(_NOT_OPEN)
        if self._pid != os.getpid():
            raise PushlaneError(
                "the producer was opened in another process, before a fork; open one in each "
                "process, with a spool of its own"
            )
        return self._background

    def _encoder(self, content: Content) -> Encode:
        encode = encoder(self._task, self._limits, content)
        if content.key is not None and self._running.refuses_keys:
            raise BadInput(KEYS_WAIT)
        if content.is_empty and not self._told_empty:
            self._told_empty = True
            log.warning(
                "producer %s: a push has %s; such pushes are sent as they are, and told of once",
                self._name,
                NOTHING,
                extra={"action": "push_empty", "task": self.task_id},
            )
        return encode

    def _put(self, encode: Encode, block_s: float) -> str:
        return f"{self.task_id}-{self._running.buffer.put(encode, block_s)}"

    def _new_task(self) -> Task:
        return replace(new_task(self._task_options, self._settings), is_fed=True)

    def _header(self) -> Header:
        batch = self._options.max_batch or self._settings.batch
        return Header(self._new_task(), batch, added=Added.NO)

    def _spooled(self, path: Path) -> BatchStore:
        """Return the spool to go on with, which is begun if there is none of these options."""
        self._folder = folder = SpoolFolder(path, self._options.max_spool_bytes)
        header, found = self._header(), None
        for spool in folder.spools:
            if spool.header.is_sealed:
                continue
            if found is None and _options_of(spool.header) == _options_of(header):
                found = spool
            else:
                spool.seal()
        return found or folder.begin(header)


_NOT_OPEN = "the producer is not open; use it inside `with Producer(...) as producer:`"


def _options_of(header: Header) -> tuple[object, ...]:
    """Return all that a spool's task has to have in common with ours, to go on with it."""
    task = header.task
    same = (task.name, task.level, task.app, task.quota, task.delivery, task.on_unknown, task.sinks)
    return (*same, task.stop_if_dead, header.batch)
