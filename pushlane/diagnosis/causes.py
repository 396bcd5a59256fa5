"""What a task waits for, with what to do about it; its STATE and REASON wherever it is shown.

Pure: each function looks at one kind of wait in a `Situation`. A cause that is `final` keeps all of
the task, so that what would otherwise slow it down is not worth telling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import Progress, State, Task
from pushlane.diagnosis.situation import (
    Cause,
    Situation,
    due_text,
    later_causes,
    reasons_text,
    resting_since,
    short_deaths_text,
    unserved_sinks,
    waits_text,
    what_text,
    with_deaths,
)
from pushlane.diagnosis.slowing import SLOWER
from pushlane.model.due import PutOff, Waiting, waiting_of
from pushlane.model.load import quiet_until, sink_now
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.model.states import FAILING, OPEN, RECEIVING, RESTING, SCHEDULED, STALLED, WAITING
from pushlane.model.streams import is_of_partition, is_of_producer
from pushlane.model.task_changes import has_nothing_left, is_lane_kept, submit_again
from pushlane.settings import Settings
from pushlane.util.texts import clock


def causes(situation: Situation) -> list[Cause]:
    """Return what the task waits for, most important first: at least one cause.

    What died of it is told too.
    """
    found = _waits(situation)
    return with_deaths(situation.task, situation.progress, situation.reasons.dead, found)


def _waits(situation: Situation) -> list[Cause]:
    found: list[Cause] = []
    for look in _LOOKS:
        found += look(situation)
        if any(cause.name in _ENDS for cause in found):
            return found
    if not any(cause.final for cause in found):
        for look in SLOWER:
            found += look(situation)
    return [cause for cause in found if cause.name not in _told_by(found)]


def _told_by(found: list[Cause]) -> set[str]:
    """Return the names of causes that are not worth telling beside these.

    A limit is why the lane waits for room, and why a share or more slots would change nothing.
    """
    names: set[str] = set()
    for cause in found:
        if cause.at_later:
            names.add("going")
        elif cause.name == "limit":
            names |= {"lane_budget", "sharing", "going"}
    return names


def _ended(now: Situation) -> Iterator[Cause]:
    task, total = now.task, now.task.total
    if not task.state.is_terminal:
        return
    counts = now.progress
    what = f"{counts.delivered:,} delivered, {counts.dead:,} dead"
    if task.state is State.DONE:
        what += _not_sent(now)
        do = f"pushlane dead list --task {task.id}" if counts.dead else ""
    else:
        what += f" of {'unknown' if total is None else f'{total:,}'}"
        do = f"pushlane clone {task.id}" if is_lane_kept(task) else submit_again(task)
    if reasons := reasons_text(counts.dead, now.reasons.dead):
        what += f"; died of {reasons}"
    why = f": {task.reason}" if task.reason else ""
    yield Cause(str(task.state), f"it is {task.state}{why}; {what}", do, task.finished_at_ms)


def _scheduled(now: Situation) -> Iterator[Cause]:
    task = now.task
    if task.is_scheduled(now.now_ms):
        detail = f"it starts {clock(task.not_before_ms)}"
        do = f"wait, or move it: pushlane reschedule {task.id} --not-before now"
        yield Cause("scheduled", detail, do, final=True)


def _not_sent(now: Situation) -> str:
    """Return how many pushes of a task that is done expired and were dropped, and why."""
    counts = now.progress
    text = f", {counts.expired:,} expired" if counts.expired else ""
    if not counts.dropped:
        return text
    why = reasons_text(counts.dropped, now.reasons.dropped) or f"pushlane results {now.task.id}"
    return f"{text}, {counts.dropped:,} dropped ({why})"


def _paused(now: Situation) -> Iterator[Cause]:
    task = now.task
    if task.state is State.PAUSED:
        why = f": {task.reason}" if task.reason else ""
        yield Cause("paused", f"it is paused{why}", f"pushlane resume {task.id}", final=True)


def _half_made(now: Situation) -> Iterator[Cause]:
    task = now.task
    if task.is_half_made and now.is_stalled:
        detail, do = stalled_advice(task)
        yield Cause("stalled", detail, do, task.stalled_at_ms)
    elif has_nothing_left(task, now.progress):
        yield Cause("open", *OPEN_ADVICE, final=True)
    elif task.state is State.SUBMITTED and now.is_receiving:
        detail = f"{_lines_text(task)}, and sends nothing before it is closed"
        yield Cause(RECEIVING, detail, RECEIVING_ADVICE, task.created_at_ms, final=True)
    elif task.state is State.SUBMITTED:
        detail = "its submit has only begun: its lane is not open yet"
        yield Cause("submitting", detail, "wait for the submit", task.created_at_ms, final=True)


OPEN_ADVICE = (
    "its producer is not running, and nothing of it is left",
    "start the producer to continue; to end the task: its close(seal=True), `pushlane spool send "
    "DIR --seal`, or cancel it",
)


RECEIVING_ADVICE = "send the rest of its lines, and close it"


def _lines_text(task: Task) -> str:
    return f"it has taken lines since {clock(task.created_at_ms)}"


def stalled_advice(task: Task) -> tuple[str, str]:
    """Return what is wrong with a half-made task that nobody makes any more, and what to do."""
    if is_of_partition(task):
        return "nothing is ingested for it", "start `pushlane ingest` again, or cancel the task"
    if is_of_producer(task):
        detail = "its producer was killed, and had no spool"
        return detail, "do nothing: it is closed ten minutes later, and finishes once all is sent"
    if task.is_fed:
        detail = "its producer is not running"
        return detail, "start it again, run `pushlane spool send DIR`, or cancel the task"
    if task.key:
        detail = "its submit stopped half-way, or at its --first rows"
        return detail, "run it again with the same --key, or cancel the task"
    return "its submit stopped half-way, and cannot go on without a --key", "cancel the task"


def _unserved(now: Situation) -> Iterator[Cause]:
    if not now.processes:
        sink = now.sinks_here[0] if now.sinks_here else now.task.chain[0]
        is_open = sink == DEFAULT_SINK and (now.settings is None or now.settings.sink == "null")
        first = "pushlane dispatch --sink webhook:URL" if is_open else "pushlane dispatch"
        lacks, do = _lacking(sink, now.settings) or ("", first)
        detail = f"no dispatcher runs; it goes to sink {sink}{lacks}"
        yield Cause("no_dispatcher", detail, do, final=True)
        return
    for name in unserved_sinks(now.task, now.processes):
        if name in now.sinks_here:
            is_later = now.is_later(name)
            what = "pushes that went on go" if is_later else "it goes"
            why, do = unserved_advice(name, now.settings)
            detail = f"{what} to sink {name}{why}"
            final = now.has_moved_on or not is_later
            yield Cause("sink_unserved", detail, do, final=final, at_later=is_later)


def unserved_advice(sink: str, settings: Settings | None) -> tuple[str, str]:
    """Return what is wrong with a sink that nobody serves, as the end of a sentence, and a cure."""
    return _lacking(sink, settings) or (", which nobody serves", _serve_command(sink))


def _serve_command(sink: str) -> str:
    return f"pushlane dispatch --serve {sink}"


def _lacking(sink: str, settings: Settings | None) -> tuple[str, str] | None:
    """Return the same for a sink that the settings lack; None for one that they have.

    Beside named sinks `default` is one only if the setting `sink` says what it is: a process made
    to serve it all the same would send its pushes nowhere.
    """
    if settings is None or sink in settings.served:
        return None
    if sink == DEFAULT_SINK:
        do = "set `sink`, or submit it again with --sink NAME"
        return ", which the settings do not define", do
    do = f"put the table [sinks.{sink}] back into the settings, then {_serve_command(sink)}"
    return ", which nobody serves and the settings do not have", do


def _resting(now: Situation) -> Iterator[Cause]:
    for name in now.sinks_here:
        yield from _resting_at(now, name)


def _resting_at(now: Situation, sink: str) -> Iterator[Cause]:
    stands, is_later = sink_now(now.processes, sink).stands, now.is_later(sink)
    resting = [one.resting for one in stands if one.resting is not None]
    if not resting:
        return
    first, target = _first_resting(stands)
    target = target if now.shows_targets else None
    again = [one.again_at_ms for one in resting if one.again_at_ms]
    where = f" in {len(resting)} of {len(stands)} processes" if len(resting) < len(stands) else ""
    next_ms = min(again, default=0)
    is_final = len(resting) == len(stands) and all(one.is_shut for one in resting)
    went_on = f"pushes that went on go to sink {sink}: " if is_later else ""
    yield Cause(
        "sink_rests" if any(one.is_shut for one in resting) else "sink_recovers",
        f"{went_on}{first.stands_at(target)}{where}: {resting_since(first, next_ms)}",
        _resting_advice(sink, resting, target),
        first.since_ms,
        final=is_final and (now.has_moved_on or not is_later),
        at_later=is_later,
    )


def _first_resting(stands: Sequence[ServedSink]) -> tuple[Resting, SinkTarget | None]:
    """Return what has rested longest of these, of which one does, and what it delivers to."""
    found = [(one.resting, one.target) for one in stands if one.resting is not None]
    return min(found, key=lambda one: one[0].since_ms)


def _resting_advice(sink: str, resting: Sequence[Resting], target: SinkTarget | None) -> str:
    if any(one.is_unproven for one in resting):
        return (
            "check its URL or settings, and restart its dispatchers with the right ones: nothing "
            f"is lost; if its answers are right: pushlane sinks accept {sink}"
        )
    if any(one.is_shut for one in resting):
        moved = ""
        if target is not None and target.host:
            moved = f"; if {target.host} is wrong, restart its dispatchers with the right URL"
        return f"fix the sink: it is tried again by itself, and nothing is lost{moved}"
    return "nothing yet: it gets as many pushes as it takes; if it takes none, it rests soon"


def _quiet(now: Situation) -> Iterator[Cause]:
    if until_ms := quiet_until(now.task, now.now_ms):
        task = now.task
        zone = task.zone or "UTC"
        detail = f"quiet hours {task.quiet} in {zone} end {clock(until_ms)}"
        if task.zone_column != "" or task.is_fed:
            detail += "; recipients with a zone of their own have theirs"
        do = f"wait, or let it go: pushlane reschedule {task.id} --quiet none"
        yield Cause("quiet_hours", detail, do)


def _spent(now: Situation) -> Iterator[Cause]:
    """Tell totals that are spent: nothing new goes, of daily ones until the day ends in UTC.

    Pushes that went once are charged already: with only such left nothing waits for a total.
    """
    for one in now.load.spent_totals(now.task) if now.has_uncharged else ():
        what, flag = _TOTALS[one.name]
        detail = f"the limit of {one.subject} is spent: {one.most:,g} {what}"
        if one.left > 0:
            detail += f", of which {one.left:,.4g} is left, and a push takes {one.of_one:,.4g}"
        do = f"pushlane limit {one.subject} {flag} N, or none"
        yield Cause("limit_spent", detail, do, final=True)


_TOTALS = {
    "total": ("pushes in all", "--total"),
    "total_cost": ("of cost in all", "--total-cost"),
    "a_day": ("pushes a day, until 00:00 UTC", "--a-day"),
    "cost_a_day": ("of cost a day, until 00:00 UTC", "--cost-a-day"),
}


_ENDS = ("done", "cancelled", "expired")
_LOOKS: tuple[Callable[[Situation], Iterator[Cause]], ...] = (
    _ended,
    _scheduled,
    _paused,
    _half_made,
    _unserved,
    _resting,
    _quiet,
    _spent,
    later_causes,
)

_FEW_DEAD = 20
_DAY_MS = 86_400_000


class TaskStatus(NamedTuple):
    """The state that a task is shown in, and why, empty where there is nothing to say."""

    state: str
    reason: str = ""


_RUNS = TaskStatus(State.RUNNING)


class TaskStatuses:
    """Says how tasks stand, by what these processes say of themselves; sinks are looked at once."""

    def __init__(self, processes: Sequence[Process], now_ms: int) -> None:
        self._processes = [one for one in processes if one.kind == "dispatcher"]
        self._now_ms = now_ms
        self._at_sink = functools.cache(self._sink_status)

    def of(
        self,
        task: Task,
        progress: Progress,
        put_off: Sequence[PutOff],
        died_of: Mapping[str, int],
        *,
        is_stalled: bool,
        is_receiving: bool = False,
        moved_to: Sequence[str] = (),
    ) -> TaskStatus:
        """Return how a task stands: what its pushes died of is told first, unless it is paused.

        `put_off` is what was noted of pushes that wait, `died_of` counts dead ones by reason. All
        that is left has `moved_to` these sinks behind its first, if there are any.
        """
        stands = self._stands(task, progress, put_off, moved_to, is_stalled=is_stalled)
        if is_receiving and stands.state in (State.SUBMITTED, State.RUNNING):
            stands = TaskStatus(RECEIVING, stands.reason or _lines_text(task))
        is_done = task.state is State.DONE
        if not progress.dead or task.state is State.PAUSED:  # it would seem to be why
            return stands
        deaths = short_deaths_text(progress, died_of, has_ended=is_done)
        if not deaths:
            return stands
        return stands._replace(reason="; ".join(filter(None, (deaths, stands.reason))))

    def _stands(
        self,
        task: Task,
        progress: Progress,
        put_off: Sequence[PutOff],
        moved_to: Sequence[str],
        *,
        is_stalled: bool,
    ) -> TaskStatus:
        if is_stalled:
            return TaskStatus(STALLED, ": ".join(stalled_advice(task)))
        if task.state is not State.RUNNING:
            return TaskStatus(task.state.value, task.reason)
        if task.left_with is not None and has_nothing_left(task, progress):
            return TaskStatus(OPEN, "its producer is not running")
        if task.not_before_ms > self._now_ms:
            return TaskStatus(SCHEDULED, f"starts {due_text(task.not_before_ms, self._now_ms)}")
        return (
            (self._at_sinks(moved_to) if moved_to else self._at_sink(task.chain[0]))
            or (failing(task, progress) if progress.dead else None)
            or (self._resting(task, progress, put_off) if put_off or task.quiet else None)
            or (TaskStatus(State.RUNNING, task.reason) if task.reason else _RUNS)
        )

    def _at_sinks(self, sinks: Sequence[str]) -> TaskStatus | None:
        """Return the same of several sinks: None while pushes go to one of them as they come."""
        held = [status for sink in sinks if (status := self._at_sink(sink)) is not None]
        if len(held) < len(sinks):
            return None
        return next((one for one in held if one.state != WAITING), held[0])

    def is_held_anywhere(self, task: Task) -> bool:
        """Return whether a sink that its pushes got to, the first too, gets none or fewer."""
        return any(self._at_sink(sink) for sink in (task.chain[0], *task.reached))

    def _sink_status(self, sink: str) -> TaskStatus | None:
        """Return why no push goes to a sink, or fewer than there are; None when they go."""
        if not self._processes:
            return TaskStatus(WAITING, "no dispatcher runs: pushlane dispatch")
        stands = sink_now(self._processes, sink).stands
        if not stands:
            return TaskStatus(
                WAITING, f"nobody serves sink {sink}: pushlane dispatch --serve {sink}"
            )
        resting = [one.resting for one in stands if one.resting is not None]
        if len(resting) < len(stands):
            return None
        first = min(resting, key=lambda one: one.since_ms)
        if all(one.is_shut for one in resting):
            return TaskStatus(WAITING, f"sink {sink} rests: {_since(first, self._now_ms)}")
        return TaskStatus(
            State.RUNNING, f"sink {sink} gets fewer pushes: {_since(first, self._now_ms)}"
        )

    def _resting(
        self, task: Task, progress: Progress, notes: Sequence[PutOff]
    ) -> TaskStatus | None:
        """Return until when all of the task waits for its time; None while some of it may go."""
        waits = waiting_of(notes, self._now_ms)
        left = None if task.total is None else task.total - progress.finished
        if waits and left is not None and left <= sum(one.pushes for one in waits):
            return TaskStatus(RESTING, waits_line(waits, left, self._now_ms))
        until_ms = 0 if _has_own_times(task) else quiet_until(task, self._now_ms)
        if until_ms:
            until = due_text(until_ms, self._now_ms, task.zone)
            return TaskStatus(RESTING, f"quiet hours {task.quiet} end {until}")
        return None


def waits_line(waits: Sequence[Waiting], left: int, now_ms: int) -> str:
    """Return in one line what pushes wait for; of one reason no more than are left."""
    if len(waits) == 1:
        one = waits[0]._replace(pushes=min(left, waits[0].pushes))
        return waits_text(one, what_text(one.reason), now_ms)
    return "; ".join(waits_text(one, what_text(one.reason), now_ms) for one in waits)


def failing(task: Task, progress: Progress) -> TaskStatus | None:
    """Return that a task is failing: half of what ended or more is dead."""
    if progress.dead < _FEW_DEAD or 2 * progress.dead < progress.finished:
        return None
    return TaskStatus(FAILING, f"pushlane dead list --task {task.id}")


def _since(resting: Resting, now_ms: int) -> str:
    """Return why something rests, and since when."""
    is_today = resting.since_ms // _DAY_MS == now_ms // _DAY_MS
    text = due_text(resting.since_ms, now_ms) if is_today else clock(resting.since_ms)
    return f"{resting.why} since {text}"


def _has_own_times(task: Task) -> bool:
    """Tell whether its pushes may have zones or starts of their own, as far as that is known."""
    return task.is_fed or bool(task.zone_column or task.start_column)
