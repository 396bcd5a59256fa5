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
from typing import Any, NamedTuple, Self

from msgspec.structs import replace
from prometheus_client.registry import Collector

from pushlane.backends.backend import Connect
from pushlane.core.errors import BadInput, MalformedPush, PushlaneError, Unreachable
from pushlane.core.push import MAX_PUSH_BYTES, Push, decode, encode
from pushlane.core.task import DeliveryMode, Level, OnUnknown, Task, now_ms
from pushlane.model.stop_rule import OFF
from pushlane.model.streams import producer_key
from pushlane.model.times import FIRST_MS, LAST_MS, find_zone, given_start_ms
from pushlane.producers.columns import checked, given_addresses
from pushlane.producers.outbox.background import OutboxThread
from pushlane.producers.outbox.buffer import PRODUCER_METRICS, Encode, ProducerStats
from pushlane.producers.outbox.sender import KEYS_WAIT, Sender
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import (
    IN_ORDER,
    Added,
    BatchStore,
    Header,
    MemoryStore,
    ProducerOptions,
)
from pushlane.producers.payloads import given_payloads
from pushlane.producers.task_builder import new_task
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.validate import NOTHING
from pushlane.settings import Settings, load
from pushlane.settings.payload_limits import PayloadLimits, payload_limits
from pushlane.util.conversion import instance, moment_ms, path, seconds, shown, text
from pushlane.util.errors import OversizedPush
from pushlane.util.metrics import MetricCollector
from pushlane.util.trace_context import callers_traceparent
from pushlane.util.tracestate import LeftOut, callers_tracestate, kept_tracestate

MAX_KEY = 200
"""Characters of each key of a push: its own, that of its order, and what it collapses."""


class Content(NamedTuple):
    """The fields of a push as an application gives them; a time of 0 is now, or never."""

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
    not_before_ms: int | datetime | timedelta | str = 0
    zone: str | None = None
    ordered_by: str | None = None
    collapse: str | None = None
    tracestate: str = ""

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to show or to read in it."""
        return not (self.title or self.body or self.data or self.payload)


def encoder(task: Task, limits: PayloadLimits, content: Content, submitted_at_ms: int) -> Encode:
    """Return a function from the seqs to the bytes; it raises BadInput for what cannot travel.

    So does this for no recipient, data that is no mapping, labels out of bounds, times, keys and
    zones that cannot be, or an address or payload for no sink of the task, whose `limits` the push
    has to keep.
    """
    if not isinstance(content.recipient, str) or not content.recipient.strip():
        raise BadInput("a push has no recipient; give a text that is not empty")
    if not isinstance(content.data, Mapping | None):
        raise BadInput(f"the data of a push is a {type(content.data).__name__}, not a mapping")
    recipient = content.recipient.strip()
    not_before_ms, expires_at_ms = _times_ms(content, now_ms())
    data = dict(content.data) if content.data is not None else None
    attributes = checked(content.attributes, content.trace_id)
    addresses = given_addresses(content.address, task.chain)
    payloads = given_payloads(content.payload, task.chain)
    key, collapse = _word("key", content.key), _word("collapse", content.collapse)
    _refuse_out_of_order(task, _word("ordered_by", content.ordered_by), collapse)
    zone = "" if content.zone is None else _zone(task, content.zone)
    tracestate = kept_tracestate(content.trace_id, content.tracestate)

    def encode_push(seq: int, after_seq: int) -> bytes:
        push = Push(
            task.id,
            seq,
            recipient,
            content.title,
            content.body,
            data,
            expires_at_ms,
            submitted_at_ms,
            not_before_ms=not_before_ms,
            zone=zone,
            after_seq=after_seq,
            collapse=collapse,
            attributes=attributes,
            trace_id=content.trace_id,
            addresses=addresses,
            payloads=payloads,
            key=key,
            tracestate=tracestate,
        )
        return _encoded(limits, push)

    return encode_push


def _word(what: str, given: Any) -> str:
    """Return a key of a push, empty for None. Raises BadInput for no text, blanks, a long one."""
    if given is None:
        return ""
    found = text(f"{what} of a push", given)
    if not found.strip() or len(found) > MAX_KEY:
        wrong = f"has {len(found):,} characters" if found.strip() else "is blank"
        raise BadInput(
            f"{what} of a push {wrong}; give a text of 1 to {MAX_KEY} characters, such as "
            f"{_EXAMPLES[what]}, or leave it out"
        )
    return found


_EXAMPLES = {"key": "order-7-paid", "collapse": "score-7", "ordered_by": "account-7"}


def _refuse_out_of_order(task: Task, ordered_by: str, collapse: str) -> None:
    if ordered_by and not task.ordered:
        raise BadInput(
            "ordered_by of a push is for a producer whose pushes go in order; make it with "
            "Producer(..., ordered=True), or leave ordered_by out"
        )
    if collapse and task.ordered:
        raise BadInput(
            "collapse of a push contradicts ordered=True of its producer, which sends every push, "
            "not only the newest; leave one of the two out"
        )


def _zone(task: Task, given: Any) -> str:
    found = text("zone of a push", given)
    if not task.quiet:
        raise BadInput(
            "zone of a push has no effect without quiet hours; make the producer with "
            "quiet='22:00-08:00', or leave the zone out"
        )
    return find_zone(found).key


def _times_ms(content: Content, now_ms: int) -> tuple[int, int]:
    not_before_ms = _time_ms("not_before_ms", content.not_before_ms, now_ms, given_start_ms)
    expires_at_ms = _time_ms("expires_at_ms", content.expires_at_ms, now_ms, moment_ms)
    if expires_at_ms and expires_at_ms <= not_before_ms:
        raise BadInput(
            f"expires_at_ms {expires_at_ms} of a push is not after its not_before_ms "
            f"{not_before_ms}: it would never be sent; give a later expiry or an earlier start"
        )
    return not_before_ms, expires_at_ms


def _time_ms(what: str, given: Any, now_ms: int, read: Callable[[str, Any, int], int]) -> int:
    if type(given) is int and not given:  # most have none
        return 0
    at_ms = read(what, given, now_ms)
    if at_ms and not FIRST_MS <= at_ms <= LAST_MS:
        none = "now" if what == "not_before_ms" else "never"
        raise BadInput(
            f"{what} is {shown(at_ms)}, which is not from the years 2001 to 3000; give Unix "
            f"milliseconds, or 0 for {none}"
        )
    return at_ms


def _encoded(limits: PayloadLimits, push: Push) -> bytes:
    try:
        body = encode(push)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            "a push holds text that is not UTF-8, or data that JSON cannot hold"
        ) from error
    if len(body) > MAX_PUSH_BYTES and push.tracestate:
        LeftOut.count += 1
        return _encoded(limits, replace(push, tracestate=""))
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
    the share of dead pushes that pauses the task, like `5%`. With `ordered` a push may go after
    another, and none may collapse. In the hours `quiet`, like `22:00-08:00`, recipients are left
    alone, by the clock of a push's own zone, else of `zone`, else UTC. A push is tried
    `max_attempts` times, the settings' own unless given. Without a spool the task is closed at the
    end, or by a dispatcher once the process was killed. With a spool, a folder for this producer
    alone, pushes survive the process. The next producer of that folder continues the same task,
    until `close(seal=True)`; other options begin a new one. One that is open at the interpreter's
    exit is closed then. The first push with nothing in it is warned of. Settings are those of
    `PUSHLANE_*` and `pushlane.toml` unless given. Open it after a fork, not before. A test may give
    it another way to a backend, like `MemoryBackend().connect`. With the setting `url` it sends
    through a server of `pushlane serve`. Raises BadInput for an option that cannot be.
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
        ordered: bool = False,
        quiet: str = "",
        zone: str = "",
        max_attempts: int | str | None = None,
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
        given |= {"quiet": quiet, "zone": zone, "max_attempts": max_attempts}
        given["stop_if_dead"] = OFF if stop_if_dead == "" else stop_if_dead
        self._ordered = instance("ordered", ordered, bool)
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
        self._newest_ms = 0

    def open(self) -> Self:
        """Open the producer; the broker need not be there yet.

        Raises:
            TaskConflict: the spool is used by another producer.
            BadInput: the spool cannot be used as a folder.
        """
        if self._background:
            raise PushlaneError("the producer is open already; make another one")
        self._store = self._spooled(self._spool) if self._spool else MemoryStore(self._unkept())
        self._first_seq = self._store.next_seq
        self._background = OutboxThread(
            self._settings,
            self._options,
            self._store,
            self._folder,
            self._connect,
            self._sends_by(),
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
        not_before_ms: int | datetime | timedelta | str = 0,
        zone: str | None = None,
        ordered_by: str | None = None,
        collapse: str | None = None,
    ) -> str:
        """Accept a push, from any thread, and return its id; wait `max_block_s` at most.

        Data is what JSON can hold. An expiry is Unix milliseconds from 2001 to 3000, a datetime
        with a zone, a timedelta from now on or a text like `2h`; 0 is never. Attributes (at most
        16, of 256 characters) and trace id are not for the recipient, but for reports. With no
        trace id it is the `traceparent` of OpenTelemetry's current span, if any, with its
        `tracestate`. `address` is where it goes if that is not its recipient: a text, or one by
        sink. `payload` is what is sent as it is, by sink, under `*` for all others. Of the pushes
        of an app with the same `key` (1 to 200 characters) one is sent within `key_window_s`, a day
        by default; the others end as dropped, and this still returns an id for each.

        It is not sent before `not_before_ms`, which is given like an expiry or as the next `21:00`;
        0 is now, and so is a time that has passed. `zone` is the clock of its recipient's quiet
        hours, an IANA name. Pushes of this producer `ordered_by` the same text go one after
        another, also when one is retried, and with a spool over restarts. Of an app's pushes to a
        recipient with the same `collapse` only the newest that waits is sent.

        Raises:
            BufferFull: neither buffer nor spool had room in that time; the push is not accepted.
            BadInput: no recipient, data that cannot travel, a time outside those years, an expiry
                before the start, a key or zone that cannot be, over the size limit, or a key while
                older dispatchers may be there.
            PushlaneError: the producer is not open, or has failed; says why.
        """
        tracestate = "" if trace_id else callers_tracestate()
        trace_id = trace_id or callers_traceparent()
        content = Content(
            *(recipient, title, body, data, expires_at_ms, attributes, trace_id, address, payload),
            *(key, not_before_ms, zone, ordered_by, collapse, tracestate),
        )
        return self._put(content, self._encoder(content), self._options.max_block_s)

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
        not_before_ms: int | datetime | timedelta | str = 0,
        zone: str | None = None,
        ordered_by: str | None = None,
        collapse: str | None = None,
    ) -> str:
        """Accept a push as `push` does, for an event loop, which goes on meanwhile."""
        tracestate = "" if trace_id else callers_tracestate()
        trace_id = trace_id or callers_traceparent()
        content = Content(
            *(recipient, title, body, data, expires_at_ms, attributes, trace_id, address, payload),
            *(key, not_before_ms, zone, ordered_by, collapse, tracestate),
        )
        encode = self._encoder(content)
        if self._running.buffer.is_full:
            return await asyncio.to_thread(self._put, content, encode, self._options.max_block_s)
        return self._put(content, encode, 0.0)

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

        Pushes that are left stay in the spool. A closed task can be done; without a spool it is
        closed unless `seal` is False. With one, `seal=True` holds even if a later producer sends
        the rest. In a fork of its process it does nothing. Raises Unreachable when pushes were left
        that no spool holds: they are lost. Says how many.
        """
        within_s = seconds("timeout_s", timeout_s, 0)
        background, store = self._background, self._store
        if background is None or store is None or self._pid != os.getpid():
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

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.open)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _sends_by(self) -> type[Sender]:
        """Return what sends its pushes."""
        return Sender

    def _exit(self) -> None:
        """Close it as the interpreter exits: at what is lost nobody is left to raise an error."""
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
        encode = encoder(self._task, self._limits, content, self._submitted_at_ms(content))
        if content.key is not None and self._running.refuses_keys:
            raise BadInput(KEYS_WAIT)
        if content.is_empty and not self._told_empty:
            self._told_empty = True
            log.warning(
                "producer %s: a push has %s; such pushes are sent as they are, and logged once",
                self._name,
                NOTHING,
                extra={"action": "push_empty", "task": self.task_id},
            )
        return encode

    def _submitted_at_ms(self, content: Content) -> int:
        """Return the time now; of pushes that collapse, never one before the last one's."""
        if content.collapse is None:
            return now_ms()
        self._newest_ms = max(self._newest_ms, now_ms())
        return self._newest_ms

    def _put(self, content: Content, encode: Encode, block_s: float) -> str:
        buffer = self._running.buffer
        if content.collapse:
            buffer.collapses = True
        return f"{self.task_id}-{buffer.put(encode, block_s, (content.ordered_by or '').strip())}"

    def _new_task(self) -> Task:
        """Return a task of its options on a lane of its own: its pushes may wait for their time."""
        task = new_task(self._task_options, self._settings, on_own_lane=True)
        return replace(task, is_fed=True, ordered=self._ordered)

    def _header(self) -> Header:
        batch = self._options.max_batch or self._settings.batch
        header = Header(self._new_task(), batch, added=Added.NO)
        return replace(header, format=IN_ORDER) if self._ordered else header

    def _unkept(self) -> Header:
        """Return the header of a task that no other process goes on with: its key says so."""
        header = self._header()
        return replace(header, task=replace(header.task, key=producer_key(header.task.id)))

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
    new = (task.ordered, task.quiet, task.zone, task.max_attempts, task.pooled)
    return (*same, *new, task.stop_if_dead, header.batch)
