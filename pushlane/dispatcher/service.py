"""The dispatcher as one thing to start and stop, alone or inside somebody's own service.

It installs no signal handlers, keeps no globals and shows metrics only in the registry it is given.
Its side tasks are named and supervised: when one dies, `run` stops and says which. With `drain` it
ends when nothing can move to its sinks any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pushlane.backends.backend import Backend, Connect, connect
from pushlane.backends.contact import BROKER, REGISTRY, SILENT_S, Contact, keep_asking
from pushlane.backends.ports import listed
from pushlane.core.errors import PushlaneError, UnknownLane, UserError
from pushlane.core.lane import Lane
from pushlane.core.names import later_lane
from pushlane.core.push import FORMAT, Kind
from pushlane.core.retrying import Backoff
from pushlane.core.task import ACTIVE_STATES, Level, State, Task, Weights, now_ms
from pushlane.dispatcher.breaker import Restraint
from pushlane.dispatcher.gates.budget_gate import limits_in
from pushlane.dispatcher.leader.backlogs import Backlogs
from pushlane.dispatcher.leader.janitor import Janitor
from pushlane.dispatcher.leader.recalls import Recalls
from pushlane.dispatcher.leader.survey import DrainReader, Survey
from pushlane.dispatcher.line import Clocks, Line, Shared
from pushlane.dispatcher.line_report import MOST_NAMED, LineReport
from pushlane.dispatcher.outage import GIVE_UP_AFTER_S
from pushlane.dispatcher.presence import PresenceAnnouncer
from pushlane.dispatcher.progress import DispatchProgress, ProgressLog
from pushlane.dispatcher.registry_follower import RegistryFollower
from pushlane.dispatcher.sinks.given import AnySink, given_sinks
from pushlane.dispatcher.sinks.named import NamedSink
from pushlane.dispatcher.stats import Stats
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.dispatcher.tracing.traces import Tracing
from pushlane.model.presence import DrainFigures, LaneWait, Process
from pushlane.model.streams import is_of_producer
from pushlane.model.task_changes import has_nothing_left
from pushlane.settings import Settings, load
from pushlane.util.conversion import instance
from pushlane.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger("pushlane.dispatcher")

_CANCEL_AGAIN_S = 0.5


def supervised(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin a side task; an error of its own names it, as a PushlaneError."""

    async def run() -> None:
        try:
            await work
        except PushlaneError:
            raise
        except Exception as error:
            raise PushlaneError(
                f"the dispatcher's {name} task died with {_fault(error)}"
            ) from error

    return asyncio.create_task(run(), name=name)


def _fault(error: BaseException) -> str:
    """Name the kind and place of an error: its text might hold what a push holds."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


async def end_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel all until they have ended: a library below may swallow the first cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)


def raise_cause(tasks: list[asyncio.Task[None]]) -> None:
    """Raise what the first of these tasks died of, if any did."""
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical(
                "stopped since its task %r has ended: %s",
                task.get_name(),
                error,
                extra={"action": "task_died"},
            )
            raise error


_AGAIN_S = 1.0
_REST_A_LOOK = 20


class DrainWatch:
    """Tells when no task is left that could move now to one of these sinks.

    Of a task with pushes at a later sink of its chain that is not among them, only what is left on
    its lanes at these counts: the others may wait for ever for somebody who serves that sink. So it
    is with a task whose producer was killed, and had no spool. A task that its producer left open
    is not waited for once all of its pushes have ended: `empty` has these.
    """

    def __init__(
        self, backend: Backend, tasks: KnownTasks, sinks: set[str], clock_ms: Callable[[], int]
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._sinks = sinks
        self._clock_ms = clock_ms
        self._given_up: frozenset[str] = frozenset()
        self.empty: list[Task] = []
        self._changed = asyncio.Event()

    def give_up(self, sinks: frozenset[str]) -> None:
        """Wait for these sinks no longer, and for all others of its own again."""
        if sinks != self._given_up:
            self._given_up = sinks
            self._changed.set()

    def on_task(self, task: Task) -> None:
        self._changed.set()

    def on_unread(self, task_id: str) -> None:
        self._changed.set()

    async def wait(self) -> frozenset[str]:
        """Return the sinks that were given up, once nothing is left to move to the others."""
        backoff = Backoff(log, "the broker")
        await self._tasks.synced.wait()
        while True:
            given_up, began_s = self._given_up, time.perf_counter()
            can_move = [task for task in self._tasks.active.values() if self._can_move(task)]
            took_s = time.perf_counter() - began_s
            moving = await backoff.until_done(partial(self._without_empty, can_move))
            elsewhere = all(self._is_elsewhere(task) for task in moving)
            if elsewhere and not await backoff.until_done(partial(self._is_left, moving)):
                if given_up == self._given_up:
                    return given_up
                continue
            looks_again = elsewhere or any(task.left_with is not None for task in moving)
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S if looks_again else None):
                    await self._changed.wait()
            await asyncio.sleep(_REST_A_LOOK * took_s)  # of many tasks, many end meanwhile
            self._changed.clear()

    async def _without_empty(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks but for those that their producer left open, with nothing left."""
        left_open = [task for task in tasks if task.left_with is not None]
        counts = await self._backend.registry.progress([task.id for task in left_open])
        pairs = zip(left_open, counts, strict=True)
        self.empty = [task for task, progress in pairs if has_nothing_left(task, progress)]
        return [task for task in tasks if task not in self.empty]

    def _can_move(self, task: Task) -> bool:
        if task.state is State.PAUSED or task.is_scheduled(self._clock_ms()):
            return False
        return not self._waited_for().isdisjoint((task.chain[0], *task.reached))

    def _waited_for(self) -> set[str]:
        return self._sinks - self._given_up

    def _is_elsewhere(self, task: Task) -> bool:
        """Tell whether only what is on its lanes counts: the rest is elsewhere, or never comes.

        Some of it has gone on to a sink that is not served here, or its producer was killed.
        """
        if task.total is None:
            return is_of_producer(task) and task.stalled_at_ms > 0
        return not self._waited_for().issuperset(task.reached)

    async def _is_left(self, tasks: list[Task]) -> bool:
        """Tell whether anything is left on a lane of these at the sinks that are served here."""
        lanes = {
            name
            for task in tasks
            for sink in self._waited_for().intersection((task.chain[0], *task.reached))
            for lane in (task.lane_at(sink), task.first_lane or task.lane)
            for name in (lane, later_lane(lane))
        }
        for lane in lanes:
            with suppress(UnknownLane):
                if await self._backend.broker.backlog(lane):
                    return True
        return False


_CONCLUDE_S = 1.5
_RELEASE_S = 0.75
_LOOK_EVERY_S = 1.0
_MOST_NAMED = 5


class Dispatcher:
    """Drains the backend's lanes into a sink, or into several, each under its name.

    `open` is the short way to one that runs beside other work; `sink` is what that one takes. One
    alone is the sink `default`. With several, each has the settings of its name
    (`Settings.of_sink`) and is served by a line of its own; lanes of other sinks are not read. A
    sink that is made here, like that of a function, is closed when `run` ends; an object with
    `deliver` is its owner's. With `drain`, `run` returns when no task is left that could move now
    (those that are paused or start later do not count). `registry` is where Prometheus metrics are
    shown. `clock_ms` tells the time as Unix milliseconds, and `clock_s` to the breaker in seconds
    since whenever; if that one jumps, `wake` has to be called.
    """

    _died_of: BaseException | None = None

    def __init__(
        self,
        backend: Backend,
        sink: AnySink | None,
        settings: Settings,
        *,
        drain: bool = False,
        retry_timeouts: bool = False,
        registry: CollectorRegistry | None = None,
        clock_ms: Callable[[], int] = now_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        sinks, self._made = given_sinks(sink, settings, retry_timeouts=retry_timeouts)
        self._watched = [one for one in sinks.values() if isinstance(one, NamedSink)]
        self._backend = backend
        self._settings = settings
        limits = limits_in(settings, sinks)
        self._id = f"dispatcher-{secrets.token_hex(4)}"
        self._tracing = Tracing(settings, self._id) if settings.trace_endpoint else None
        clocks = Clocks(clock_ms, clock_s)
        self._shared = shared = Shared(backend, clocks, limits, self._tracing)
        self._lines = [
            Line(shared, name, one, settings.of_sink(name), drain=drain)
            for name, one in sinks.items()
        ]
        self._reports = [LineReport(line) for line in self._lines]
        self.contact = Contact(BROKER, REGISTRY, clock_s=clock_s)
        self._follower = RegistryFollower(backend, shared.tasks, self._lines, self.contact)
        self._started_at_ms = clock_ms()
        self._janitor = Janitor(backend, self._id, settings)
        self._survey = self._make_survey(clock_ms)
        self._ended_at_survey = 0
        self._progress_log = ProgressLog(self.progress, clock_s)
        self._recalls = Recalls(backend, self._leads, shared.tasks.apply, clock_s)
        self._drain_reader = DrainReader(backend.presence)
        replaces = settings.replace_sink
        self._announcer = PresenceAnnouncer(backend, self.as_process, replaces=replaces)
        for outage in shared.outages.values():
            outage.on_change = self._announcer.say_now
        self._drains = drain
        self._drain_watch = DrainWatch(backend, shared.tasks, set(sinks), clock_ms)
        self._given_up: list[Line] = []
        self._ended = asyncio.Event()
        for listener in (shared.completion, self._janitor, self._recalls, self._drain_watch):
            shared.tasks.add_listener(listener)
        if registry is not None:
            self._show_metrics(registry)

    def _make_survey(self, clock_ms: Callable[[], int]) -> Survey:
        shared = self._shared
        return Survey(
            self._backend,
            Backlogs(self._backend, shared.tasks.active, clock_ms),
            self._leads,
            lambda: Weights(**self.weights()),
            lambda: shared.limits.limits,
            self._settings.drain_target_s,
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        sink: AnySink | None = None,
        settings: Settings | None = None,
        retry_timeouts: bool = False,
        registry: CollectorRegistry | None = None,
        connect: Connect = connect,
    ) -> AsyncIterator[Dispatcher]:
        """Deliver in the background for as long as the block lasts: `async with ... as it:`.

        `sink` is a function of one push (sync or async), a module with `@on` functions or its name,
        a text as `--sink` takes it, an object with `deliver`, or a mapping of names to these. None
        means those of the settings. Settings are those of `PUSHLANE_*` and `pushlane.toml` unless
        given. In the end what is in flight is finished, then the store is closed. It takes over no
        signal and ends no process.

        Raises:
            BadInput: the sink or a setting cannot be.
            Unreachable: broker or registry did not answer at the start.
            PushlaneError: what `run` raises, at the end of the block or out of a wait in it.
        """
        own = load() if settings is None else instance("settings", settings, Settings)
        async with connect(own) as backend:
            it = cls(backend, sink, own, retry_timeouts=retry_timeouts, registry=registry)
            begun = asyncio.Event()
            it.contact.on_started = begun.set
            running = asyncio.create_task(it.run(), name="dispatcher")
            try:
                await it._unless_ended(begun.wait())
                yield it
            except BaseException:
                it.stop()
                with suppress(PushlaneError):  # it is in the log; what the block raised comes first
                    await running
                raise
            it.stop()
            await running

    async def drained(self) -> None:
        """Wait until no task is left that could move now; paused and scheduled ones may be left.

        Raises PushlaneError when the dispatcher ends before: what it died of, if it did.
        """
        await self._unless_ended(self._until_drained())

    async def stopped(self) -> None:
        """Wait until somebody calls `stop`. Raises what the dispatcher died of, if it did."""
        await self._ended.wait()
        if self._died_of is not None:
            raise self._died_of

    async def _until_drained(self) -> None:
        unfinished = await listed(self._backend.registry, ACTIVE_STATES)
        await self._shared.tasks.limit_first(unfinished)
        for task in unfinished:  # of what was submitted just now, nobody may have told yet
            self._shared.tasks.apply(task)
        await self._drain_watch.wait()

    async def _unless_ended(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for the work. Raises PushlaneError when the dispatcher ends before."""
        waits = asyncio.create_task(work), asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not waits[0].done():
                await self.stopped()
                raise PushlaneError("the dispatcher was stopped, and something may be left")
            await waits[0]
        finally:
            for one in waits:
                one.cancel()

    def _show_metrics(self, registry: CollectorRegistry) -> None:
        from pushlane.backends.process_metrics import folders_in_use
        from pushlane.dispatcher.metrics import DispatcherState, collectors

        state, folders = (
            DispatcherState(self.contact, self._janitor, self._tracing),
            folders_in_use(self._settings),
        )
        for collector in collectors(state, self._lines, self._survey.figures, folders):
            registry.register(collector)

    def _leads(self) -> bool:
        return self._janitor.leader.leads

    @property
    def stats(self) -> Stats:
        """The counts of the only sink, or of the first of several."""
        return self._lines[0].stats

    def stats_by_sink(self) -> dict[str, Stats]:
        """Return the counts of each sink since the start, by its name."""
        return {line.name: line.stats for line in self._lines}

    def progress(self) -> DispatchProgress:
        """Return what it has done since the start, over all sinks. It asks nobody.

        The number of pushes left is known while this process leads: as its survey found it, less
        what has ended here since.
        """
        outcomes: Counter[Kind] = Counter()
        died_of: Counter[str] = Counter()
        for line in self._lines:
            died_of.update(line.stats.died_of)
            for (_, kind), count in line.stats.outcomes.items():
                outcomes[kind] += count
        found = DispatchProgress(
            outcomes=outcomes,
            died_of=died_of,
            in_flight=sum(line.slots.in_flight for line in self._lines),
            resting=[text for report in self._reports if (text := report.resting_text())],
        )
        left = self._left_at_survey()
        if left is None:
            return found
        return replace(found, left=max(0, left - (found.ended - self._ended_at_survey)))

    def _left_at_survey(self) -> int | None:
        figures = self._survey.figures()
        if figures is None:
            return None
        names = {line.name for line in self._lines}
        return sum(left for (_, sink), left in figures.backlog.items() if sink in names)

    def _on_survey(self) -> None:
        self._ended_at_survey = self.progress().ended
        self._announcer.say_now()

    def missing(self) -> list[str]:
        """Return what keeps it from dispatching, a line for each; empty when nothing does.

        It asks nobody and may be called on any thread: `["starting"]`, `["stopping"]`, or who does
        not answer and since when. A sink that rests is not missing.
        """
        missing = self.contact.missing()
        oldest_s = max(line.flusher.oldest_s() for line in self._lines)
        if oldest_s > SILENT_S and not self.contact.is_stopping:
            missing.append(f"outcomes: none was made durable since {oldest_s:.0f} s")
        return missing

    def remarks(self) -> list[str]:
        """Return what is the matter and keeps it from nothing. Any thread may call it."""
        said = [(line.name, remark) for line in self._lines if (remark := line.receipts.remark())]
        return [f"sink {name}: {remark}" for name, remark in said]

    async def drain(self, sinks: Sequence[str] = ()) -> DrainFigures:
        """Return how long the backlog of these sinks takes, of all unless any is named.

        Raises:
            NoLeader: no live process leads and has looked at the tasks lately.
            BadInput: there is no such sink.
            Unreachable: the registry does not answer.
        """
        return await self._drain_reader.read(sinks)

    def stop(self) -> None:
        """Stop gently: take no more, finish what is in flight, send the acks."""
        self.contact.stopping()
        self._announcer.targets.stop()
        for line in self._lines:
            line.loop.stop()

    def wake(self) -> None:
        """Look at once at what may go."""
        for line in self._lines:
            line.wake()

    def try_again(self, sink: str) -> None:
        """Try a resting sink at once, for example after its credentials were replaced."""
        for line in self._lines:
            if line.name == sink:
                line.outage.try_again()

    def resting(self) -> list[Restraint]:
        """List what gets fewer pushes than there are, since it fails."""
        restraints = (line.outage.restraint(now_ms()) for line in self._lines)
        return [one for one in restraints if one is not None]

    def reads(self, lane: str) -> bool:
        """Tell whether this process has the lane open."""
        known = self._lane(lane)
        return known is not None and known.main.reader is not None

    def lanes(self) -> list[str]:
        """List the lanes that this process serves, the shared ones included."""
        return [name for line in self._lines for name in line.lanes.by_name]

    def is_fed(self, lane: str) -> bool:
        """Tell whether this process has something of the lane at hand."""
        known = self._lane(lane)
        return known is not None and known.fed

    def quota(self, lane: str) -> int:
        """Return the quota in force for a lane that this process knows."""
        for line in self._lines:
            if known := line.lanes.by_name.get(lane):
                return line.scheduler.quota(known)
        raise KeyError(lane)

    def app_quota(self, app: str) -> int:
        """Return the quota in force for an app."""
        return self._lines[0].scheduler.app_quota(app)

    def weights(self) -> dict[Level, int]:
        """Return the level weights in force."""
        return self._lines[0].scheduler.weights()

    def _lane(self, name: str) -> Lane | None:
        lanes = (line.lanes.by_name.get(name) for line in self._lines)
        return next(filter(None, lanes), None)

    async def run(self) -> None:
        """Dispatch until `stop`, or with `drain` until nothing is left.

        When it is cancelled, what is in flight is given up, and its pushes are repeated.

        Raises:
            Unreachable: broker or registry did not answer at the start.
            UserError: lanes may hold messages of a format that this process does not read, or a
                live process delivers by the same name to another target.
            UserError: with `drain`, a sink whose target never delivered was given up.
            PushlaneError: a side task died; names it.
        """
        try:
            await self._run()
        except BaseException as error:
            self._died_of = error
            raise
        finally:
            self._ended.set()
            for sink in self._made:
                await sink.close()
            if self._tracing is not None:
                await self._tracing.close()

    async def _run(self) -> None:
        await self._backend.broker.ping()
        await self._shared.targets.load()
        if not await self._announcer.enter():
            return
        await self._shared.limits.look()  # before anything is sent
        for line in self._lines:
            await line.target_memory.look()
        work = [supervised(name, part) for name, part in self._side_tasks()]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            await asyncio.gather(*(line.settle_all() for line in self._lines))
            await self._conclude()
        finally:
            await end_all(work)
            await self._let_go()
        raise_cause(work)
        self._raise_given_up()

    def _side_tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "registry", self._follower.run()
        yield "broker", keep_asking(self.contact[BROKER], self._backend.broker.ping)
        yield "limits", self._shared.limits.run()
        yield "pauses", self._shared.pauses.run()
        yield "stops", self._shared.stops.run()
        yield "budgets", self._shared.budgets.leasing.run()
        yield "own lanes", self._shared.own_lanes.run()
        yield "completion", self._shared.completion.run()
        yield "janitor", self._janitor.run()
        yield "recalls", self._recalls.run()
        yield "presence", self._announcer.run()
        yield "survey", self._survey.run(self._shared.tasks.synced, self._on_survey)
        yield "progress", self._progress_log.run()
        if self._drains:
            yield "drain", self._stop_when_drained(self._drain_watch)
            yield "given up", self._follow_given_up(self._drain_watch)
        for sink in self._watched:
            yield f"files of sink {sink.name}", sink.watch(self.try_again)
        for line in self._lines:
            of_sink = f" of sink {line.name}" if len(self._lines) > 1 else ""
            for name, part in line.side_tasks():
                yield name + of_sink, part

    async def _stop_when_drained(self, drain_watch: DrainWatch) -> None:
        given_up = await drain_watch.wait()
        self._given_up = [line for line in self._lines if line.name in given_up]
        if empty := drain_watch.empty:
            names = ", ".join(task.name or task.id for task in empty[:_MOST_NAMED])
            more = f" and {len(empty) - _MOST_NAMED:,} more" if len(empty) > _MOST_NAMED else ""
            log.info(
                "nothing is left of %s%s: it stays open, as %s producer is not running",
                names,
                more,
                "its" if len(empty) == 1 else "each one's",
                extra={"action": "drain_open"},
            )
        self.stop()

    async def _follow_given_up(self, drain_watch: DrainWatch) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            given_up = (line.name for line in self._lines if line.outage.is_given_up)
            drain_watch.give_up(frozenset(given_up))

    def _raise_given_up(self) -> None:
        """Say which sinks were given up, and what to do. Raises UserError if there are any."""
        said = [f"sink {line.name} rests: {line.outage.view().reason}" for line in self._given_up]
        if said:
            accept = "; ".join(f"pushlane sinks accept {line.name}" for line in self._given_up)
            raise UserError(
                f"{' '.join(said)} --drain waited for {GIVE_UP_AFTER_S:.0f} s and ends; what is "
                "left is untouched. Fix the sink and dispatch again, or, if its answers are "
                f"right: {accept}"
            )

    async def _conclude(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONCLUDE_S):
                await self._shared.completion.conclude()

    async def _let_go(self) -> None:
        """Give up what is in flight; others may have the lanes and the janitor's lease at once."""
        lines = self._lines
        for what, closing in (
            ("what is in flight", [line.slots.give_up for line in lines]),
            ("the lanes", [line.lanes.close for line in lines]),
            ("what it leased of limits", [self._shared.budgets.leasing.close]),
            ("the janitor's lease and what it says of itself", [self._resign]),
        ):
            try:
                async with asyncio.timeout(_RELEASE_S):
                    await asyncio.gather(*(close() for close in closing))
            except (TimeoutError, PushlaneError):
                log.warning(
                    "%s: not released in time, so it ends by its time limit",
                    what,
                    extra={"action": "left_behind"},
                )

    async def _resign(self) -> None:
        await self._announcer.close()
        await self._janitor.close()
        await asyncio.gather(*(line.close_guards() for line in self._lines))

    def as_process(self) -> Process:
        """Return what the process says of itself now."""
        return Process(
            id=self._id,
            kind="dispatcher",
            pid=os.getpid(),
            version=VERSION,
            format=FORMAT,
            lanes=sum(len(line.lanes.by_name) for line in self._lines),
            sinks=tuple(line.name for line in self._lines),
            serves=tuple(line.name for line in self._lines),
            started_at_ms=self._started_at_ms,
            resting=tuple(one for report in self._reports if (one := report.resting())),
            slow=tuple(one for report in self._reports for one in report.slow()),
            served=tuple(report.served() for report in self._reports),
            waiting=tuple(islice(self._waiting(), MOST_NAMED)),
            drain=self._survey.drain(),
            is_starting=self._announcer.targets.is_starting,
        )

    def _waiting(self) -> Iterator[LaneWait]:
        for report in self._reports:
            yield from report.waiting()
