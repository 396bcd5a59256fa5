"""`dispatch` delivers what is on the lanes, in one process or as the parent of several.

It adds to the library's Dispatcher what a program needs: signals, logs, health and metrics, and
`/drain`, how long the backlog takes as the dispatcher that leads has found it.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
import uvloop

from pushlane.backends.backend import connect
from pushlane.cli.flags import Flags, LogFormat, option, switch
from pushlane.cli.health import Health, HealthFlags, loop_patience_s, stuck_after_s
from pushlane.cli.live import LiveLine, LiveText, closing, live_line
from pushlane.cli.logs import set_up_logs
from pushlane.cli.parsing import parse_names
from pushlane.cli.signals import (
    REPEATED,
    at_latest,
    ended_if_hung,
    stop_on_signals,
    stop_with_stdin,
)
from pushlane.cli.workers import WorkerPool
from pushlane.core.errors import BadInput, PushlaneError, UserError
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.ports import Sink
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks.named import open_sinks, require_sink
from pushlane.dispatcher.transport.threads import has_threads
from pushlane.model.presence import DrainFigures
from pushlane.model.targets import target_of
from pushlane.settings import Settings

if TYPE_CHECKING:
    from pushlane.cli.health_server import HealthReply
    from pushlane.cli.workers_health import WorkersHealth

DRAIN = "/drain"
_LONGEST_S = 5.0


def drain_path(
    dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop
) -> Callable[[Mapping[str, str]], HealthReply]:
    """Return what answers a request for the figures of all sinks, or of those in `sinks=a,b`.

    It is called on another thread than the dispatcher's loop.
    """

    def answer(query: Mapping[str, str]) -> HealthReply:
        from pushlane.cli.health_server import HealthReply  # which is loaded by who serves it

        sinks = parse_names(query.get("sinks", ""))
        if unknown := sorted(set(query) - {"sinks"}):
            return HealthReply.of_lines(400, f"unknown parameter {unknown[0]!r}; use sinks=NAME,…")
        try:
            figures = _answer_to(dispatcher.drain(sinks), loop)
        except BadInput as error:
            return HealthReply.of_lines(400, str(error))
        except PushlaneError as error:
            return HealthReply.of_lines(503, str(error))
        return HealthReply(200, msgspec.json.encode(figures) + b"\n", "application/json")

    return answer


def _answer_to(
    question: Coroutine[Any, Any, DrainFigures], loop: asyncio.AbstractEventLoop
) -> DrainFigures:
    """Have the loop answer. The server outlives it: nobody answers any more while it ends.

    Raises:
        PushlaneError: what it answers instead, or that it does not.
    """
    try:
        asked = asyncio.run_coroutine_threadsafe(question, loop)
    except RuntimeError as error:
        question.close()
        raise PushlaneError("the dispatcher has ended") from error
    try:
        return asked.result(_LONGEST_S)
    except CancelledError as error:
        raise PushlaneError("the dispatcher ends") from error
    except NoAnswer as error:
        asked.cancel()
        raise PushlaneError(f"the dispatcher has not answered for {_LONGEST_S:g} s") from error


log = logging.getLogger("pushlane.dispatch")

# How long the thread of pyreqwest waits for Python's lock. The usual 5 ms hold up every answer
# that has come: a webhook gets a third less. Sinks without such a thread lose a tenth by it.
_HTTP_SWITCH_S = 0.0001
MOST_WORKERS = 256
_LEAVE_S = 4.5  # after `drain_timeout_s`: what is unsettled, lanes and leases have had their time


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The options of `dispatch`; the last two are given by the parent of a worker.

    The end of stdin is the parent's end; on the pipe `ready_fd` it hears that the worker works.
    """

    sink: Annotated[
        str | None,
        option(
            "SINK",
            "Where to deliver: webhook:URL, package.module:callable, on:package.module, print, "
            "log:PATH or null.",
        ),
    ] = None
    serve: Annotated[
        str | None,
        option("NAME,…", "Serve only these sinks of the settings."),
    ] = None
    slots: Annotated[
        int | None, option("N", "Concurrency: deliveries in flight of each process.")
    ] = None
    workers: Annotated[int, option("N", "Number of processes.", min=1, max=MOST_WORKERS)] = 1
    workers_together: Annotated[
        bool,
        switch("--workers-together", "End all workers when one ends, instead of restarting it."),
    ] = False
    loop_patience: Annotated[
        str | None,
        option("S", "End a process whose event loop hangs for this many seconds, or off."),
    ] = None
    drain: Annotated[
        bool,
        switch(
            "--drain",
            "End when all is sent; wait for a sink that fails, not for paused and scheduled tasks.",
        ),
    ] = False
    retry_timeouts: Annotated[
        bool,
        switch("--retry-timeouts", "Retry a push whose delivery timed out; it may arrive twice."),
    ] = False
    replace_sink: Annotated[
        bool,
        switch(
            "--replace-sink",
            "Start although other processes deliver the same sink to another target, to replace "
            "them.",
        ),
    ] = False
    log_format: LogFormat = None
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None

    def tell_parent(self) -> None:
        """Say that this process does its work; a parent that is gone is noticed by stdin's end."""
        if self.ready_fd is not None:
            with suppress(BrokenPipeError):
                os.write(self.ready_fd, b"1")


def dispatch(flags: Flags, asked: _Options, metrics: HealthFlags) -> None:
    """Deliver pushes until stopped: levels share the sink by weight, tasks take turns by quota.

    SIGTERM or Ctrl-C stops it cleanly: deliveries in flight finish, and nothing is sent twice. A
    second Ctrl-C ends it at once.
    """
    chosen = flags.also(
        sink=asked.sink,
        slots=asked.slots,
        log_format=asked.log_format,
        loop_patience_s=asked.loop_patience,
        replace_sink=asked.replace_sink or None,
    )
    settings = chosen.settings()
    set_up_logs(settings.log_format)
    _print_whole_lines()
    names = _served(settings, asked.serve, asked.sink)
    if DEFAULT_SINK in names:
        _require_given(chosen)
    stuck_s = stuck_after_s(settings, names)
    if asked.workers > 1:
        pool = WorkerPool(
            count=asked.workers,
            settings=chosen.given,
            serve=asked.serve,
            drain=asked.drain,
            retry_timeouts=asked.retry_timeouts,
            together=asked.workers_together,
        )
        raise typer.Exit(_run_workers(pool, metrics, stuck_s))
    if asked.workers_together:
        raise BadInput("--workers-together is about several workers: give --workers N, too")
    patience_s = loop_patience_s(settings, stuck_s)
    with metrics.serving(stuck_s) as health, ended_if_hung(health, patience_s):
        sinks = open_sinks(settings, names, retry_timeouts=asked.retry_timeouts)
        is_for_people = settings.log_format == "text" and not asked.with_parent
        with live_line(wanted=is_for_people) as live:
            uvloop.run(_dispatch(settings, sinks, health, asked, live))


def _print_whole_lines() -> None:
    """Have what a processor prints leave line by line.

    It prints from several threads. Unbuffered, Python writes each argument of a `print` on its
    own, so that lines mix; in blocks, it may lose what is printed while it writes (gh-119506).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def _run_workers(pool: WorkerPool, metrics: HealthFlags, stuck_s: float) -> int:
    """Run the workers, whose health this process serves for all; return the exit code."""
    if metrics.metrics_port is None:
        return asyncio.run(pool.run())
    from pushlane.cli.workers_health import WorkersHealth, socket_folder

    with socket_folder() as folder:
        workers = WorkersHealth(folder, pool.count, stuck_s)
        pool.sockets = folder
        pool.on_stop, pool.on_end = workers.contact.stopping, workers.ended
        pool.on_restart = workers.restarts
        with metrics.serving(stuck_s, workers) as health:
            workers.answer_for(health)
            return asyncio.run(_run_watched(pool, workers, health))


async def _run_watched(pool: WorkerPool, workers: WorkersHealth, health: Health) -> int:
    watching = asyncio.create_task(workers.watch(), name="workers' health")
    try:
        async with health.beating():
            return await pool.run()
    finally:
        watching.cancel()
        workers.close()


def _served(settings: Settings, serve: str | None, sink: str | None) -> tuple[str, ...]:
    """Return the sinks to serve. Raises BadInput for one that there is not, and for none."""
    if serve is None:
        return settings.served
    names = parse_names(serve)
    if not names:
        raise BadInput(f"--serve {serve!r} names no sink; give {', '.join(settings.served)}")
    if sink is not None and DEFAULT_SINK not in names:
        raise BadInput(
            f"--sink says what the sink `default` is, and --serve {serve} leaves that one out; "
            "give one of the two, or serve default, too"
        )
    for name in names:
        require_sink(settings, name)
    return names


def _require_given(chosen: Flags) -> None:
    """Raise BadInput unless somebody has said what the sink `default` is."""
    if chosen.origins()["sink"] == "default":
        raise BadInput(
            "no sink is given; name one, as --sink webhook:URL or the setting sink, or --sink null "
            "to throw pushes away: they count as delivered"
        )


async def _dispatch(
    settings: Settings,
    sinks: Mapping[str, Sink],
    health: Health,
    asked: _Options,
    live: LiveLine | None,
) -> None:
    try:
        async with health.beating(), connect(settings) as backend:
            dispatcher = Dispatcher(
                backend, sinks, settings, drain=asked.drain, registry=health.registry
            )
            health.missing = dispatcher.missing
            health.remarks = dispatcher.remarks
            health.add_path(DRAIN, drain_path(dispatcher, asyncio.get_running_loop()))
            stop = at_latest(dispatcher.stop, settings.drain_timeout_s + _LEAVE_S, REPEATED)
            stop = stop if live is None else closing(live, stop)
            stop_on_signals(stop, left=REPEATED)
            if asked.with_parent:
                stop_with_stdin(stop)
            dispatcher.contact.on_started = asked.tell_parent
            gc.freeze()
            _announce(settings, sinks)
            try:
                await _run(dispatcher, live)
            except UserError:  # of a sink that was given up, after all else was done
                log.info("%s", _summary(dispatcher), extra={"action": "stopped"})
                raise
    finally:
        for sink in sinks.values():
            await sink.close()
    log.info("%s", _summary(dispatcher), extra={"action": "stopped"})


def _announce(settings: Settings, sinks: Mapping[str, Sink]) -> None:
    """Say what each sink delivers to; let a client that has a thread wait less for the lock."""
    if has_threads():
        sys.setswitchinterval(_HTTP_SWITCH_S)
    for name, sink in sinks.items():
        slots = settings.of_sink(name).slots
        target = target_of(sink)
        log.info(
            "dispatching to %s (%s), %d slots", name, target, slots, extra={"action": "started"}
        )


async def _run(dispatcher: Dispatcher, live: LiveLine | None) -> None:
    """Run the dispatcher, with a line on the terminal of how it goes."""
    keeping = None
    if live is not None:
        keeping = asyncio.create_task(live.keep(LiveText(dispatcher.progress)))
    try:
        await dispatcher.run()
    finally:
        if keeping is not None:
            keeping.cancel()


def _summary(dispatcher: Dispatcher) -> str:
    counts: dict[str, int] = {}
    for stats in dispatcher.stats_by_sink().values():
        for (_, kind), count in stats.outcomes.items():
            counts[kind] = counts.get(kind, 0) + count
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())
