"""The client for code without an event loop: the same operations, each of which blocks.

One thread of its own runs an event loop, on which a client is open. Any thread may call it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pushlane.backends.backend import Connect, connect
from pushlane.client.operations import Operations
from pushlane.core.errors import PushlaneError
from pushlane.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

_NOT_OPEN = "the client is not open; use it inside `with Client.sync() as ...`"


def _blocking(
    method: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """Return the method of a client as one that blocks."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **given: P.kwargs) -> T:
        return self._answer(lambda client: method(client, *args, **given))

    return call


class _LoopThread:
    """A thread with an event loop, on which a client is open until `close`."""

    def __init__(self, client: Operations) -> None:
        self._client = client
        self._begun = threading.Event()
        self._opened: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._calls: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="pushlane-client", daemon=True)
        self._thread.start()

    def wait_opened(self) -> None:
        """Raises what kept the client from being opened."""
        self._opened.result()

    def call(self, work: Callable[[Operations], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the loop, and wait for it; what interrupts the wait cancels the work."""
        tracked = self._tracked(work)
        try:
            asked = asyncio.run_coroutine_threadsafe(tracked, self._loop)
        except RuntimeError as error:  # the loop is closed
            tracked.close()
            raise PushlaneError(_NOT_OPEN) from error
        try:
            return asked.result()
        except CancelledError as error:
            raise PushlaneError("the client was closed before this call had ended") from error
        except BaseException:
            asked.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, close the client, and join the thread."""
        self._begun.wait()
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            waited = self._ended if self._opened.done() else self._opened
            waited.set_exception(error)
        self._begun.set()
        for one in (self._opened, self._ended):
            if not one.done():
                one.set_result(None)

    async def _live(self) -> None:
        self._loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main is not None
        self._main = main
        self._begun.set()
        async with self._client:
            self._opened.set_result(None)
            with suppress(asyncio.CancelledError):
                await self._loop.create_future()  # until `close`
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _tracked(self, work: Callable[[Operations], Coroutine[Any, Any, T]]) -> T:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            return await work(self._client)
        finally:
            self._calls.discard(call)


class SyncClient:
    """The operations of `Client`, each of which blocks: `with Client.sync() as client: ...`.

    Any thread may call it, `on_progress` is called on its own one. Make it after a fork, not
    before. It is refused where an event loop runs, which would stand still meanwhile.
    """

    def __init__(self, settings: Settings | None = None, *, connect: Connect = connect) -> None:
        self._client = Operations(settings, connect=connect)
        self._thread: _LoopThread | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        _refuse_loop()
        if self._thread is not None:
            raise PushlaneError("the client is open already; make another one")
        self._pid = os.getpid()
        thread = _LoopThread(self._client)
        try:
            thread.wait_opened()
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *error: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            thread.close()

    def _answer(self, work: Callable[[Operations], Coroutine[Any, Any, T]]) -> T:
        _refuse_loop()
        if self._thread is None:
            raise PushlaneError(_NOT_OPEN)
        if self._pid != os.getpid():
            raise PushlaneError(
                "the client was opened in another process, before a fork; open one in each process"
            )
        return self._thread.call(work)

    submit = _blocking(Operations.submit)
    tasks = _blocking(Operations.tasks)
    find_tasks = _blocking(Operations.find_tasks)
    task = _blocking(Operations.task)
    wait = _blocking(Operations.wait)
    pause = _blocking(Operations.pause)
    resume = _blocking(Operations.resume)
    cancel = _blocking(Operations.cancel)
    promote = _blocking(Operations.promote)
    demote = _blocking(Operations.demote)
    set_quota = _blocking(Operations.set_quota)
    set_stop_if_dead = _blocking(Operations.set_stop_if_dead)
    reschedule = _blocking(Operations.reschedule)
    forget = _blocking(Operations.forget)
    unreadable_tasks = _blocking(Operations.unreadable_tasks)
    unreadable = _blocking(Operations.unreadable)
    remove_unreadable = _blocking(Operations.remove_unreadable)
    clone = _blocking(Operations.clone)
    replay = _blocking(Operations.replay)
    put_stream = _blocking(Operations.put_stream)
    streams = _blocking(Operations.streams)
    stream = _blocking(Operations.stream)
    set_stream_quota = _blocking(Operations.set_stream_quota)
    pause_stream = _blocking(Operations.pause_stream)
    resume_stream = _blocking(Operations.resume_stream)
    end_stream = _blocking(Operations.end_stream)
    limits = _blocking(Operations.limits)
    limit = _blocking(Operations.limit)
    set_limit = _blocking(Operations.set_limit)
    clear_limit = _blocking(Operations.clear_limit)
    app_quota = _blocking(Operations.app_quota)
    set_app_quota = _blocking(Operations.set_app_quota)
    clear_app_quota = _blocking(Operations.clear_app_quota)
    weights = _blocking(Operations.weights)
    set_levels = _blocking(Operations.set_levels)
    preview = _blocking(Operations.preview)
    apply = _blocking(Operations.apply)
    processes = _blocking(Operations.processes)
    formats = _blocking(Operations.formats)
    set_formats = _blocking(Operations.set_formats)
    pool = _blocking(Operations.pool)
    set_pool = _blocking(Operations.set_pool)
    sinks = _blocking(Operations.sinks)
    accepted_sink = _blocking(Operations.accepted_sink)
    accept_sink = _blocking(Operations.accept_sink)
    audit = _blocking(Operations.audit)
    me = _blocking(Operations.me)
    why = _blocking(Operations.why)
    overview = _blocking(Operations.overview)
    now = _blocking(Operations.now)
    hour = _blocking(Operations.hour)
    task_hour = _blocking(Operations.task_hour)
    examine = _blocking(Operations.examine)
    results = _blocking(Operations.results)
    receipts = _blocking(Operations.receipts)
    ends = _blocking(Operations.ends)
    recipient_hashes = _blocking(Operations.recipient_hashes)
    push = _blocking(Operations.push)
    trace = _blocking(Operations.trace)
    report = _blocking(Operations.report)
    reported = _blocking(Operations.reported)
    task_shares = _blocking(Operations.task_shares)
    dead = _blocking(Operations.dead)
    dead_push = _blocking(Operations.dead_push)
    retry_dead = _blocking(Operations.retry_dead)
    purge_dead = _blocking(Operations.purge_dead)
    suppress = _blocking(Operations.suppress)
    unsuppress = _blocking(Operations.unsuppress)
    suppressions = _blocking(Operations.suppressions)
    suppressed_in = _blocking(Operations.suppressed_in)
    clear_suppressions = _blocking(Operations.clear_suppressions)
    dead_addresses = _blocking(Operations.dead_addresses)
    register_address = _blocking(Operations.register_address)
    register_addresses = _blocking(Operations.register_addresses)
    record_events = _blocking(Operations.record_events)
    put_rule = _blocking(Operations.put_rule)
    rules = _blocking(Operations.rules)
    rule = _blocking(Operations.rule)
    rule_runs = _blocking(Operations.rule_runs)
    pause_rule = _blocking(Operations.pause_rule)
    resume_rule = _blocking(Operations.resume_rule)
    run_rule = _blocking(Operations.run_rule)
    withdraw_rule_runs = _blocking(Operations.withdraw_rule_runs)
    remove_rule = _blocking(Operations.remove_rule)
    put_alert = _blocking(Operations.put_alert)
    alerts = _blocking(Operations.alerts)
    alert = _blocking(Operations.alert)
    measure_alert = _blocking(Operations.measure_alert)
    acknowledge_alert = _blocking(Operations.acknowledge_alert)
    remove_alert = _blocking(Operations.remove_alert)


def _refuse_loop() -> None:
    """Raise PushlaneError on a thread whose event loop runs: it would stand still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise PushlaneError(
        "this thread runs an event loop, which this call would block: use `async with Client() "
        "as client` and `await client...`, or call this in a thread, as asyncio.to_thread does"
    )
