"""The view of now: who gets what beside what they are entitled to, and what holds it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.session import Session

if TYPE_CHECKING:
    from pushlane.now.picture import Picture, Share, SinkPicture, TaskPicture
    from pushlane.now.spans import Span
    from pushlane.now.verdict import Held
    from pushlane.now.view import View

SHOWN = 50
"""So many tasks, and apps, are shown: those that get or are entitled to most."""

_MOST_HELD = 20
_STATE = attrgetter("status.state")


class VerdictView(msgspec.Struct, frozen=True):
    """How it stands in one sentence, what would change it, and the command that shows or does so.

    The last two are empty where nothing is to be done.
    """

    text: str
    would: str
    command: str


class SinkNowView(msgspec.Struct, frozen=True):
    """A sink over all processes. `resting` says why it gets nothing, or less; empty when it goes.

    Its slots and its rate, which all apps share, are absent for who sees some apps alone.
    """

    name: str
    served_by: int
    slots: int | None
    in_flight: int | None
    per_s: float | None
    resting: str


class ShareNowView(msgspec.Struct, frozen=True):
    """What an app gets of a level of a sink, in pushes a second; without an app, the whole level.

    `observed_per_s` is what the registry counted at the last looks, `entitled_per_s` what is its
    right as things are. Absent is what nobody knows.
    """

    sink: str
    level: str
    app: str | None
    tasks: int
    left: int
    observed_per_s: float | None
    entitled_per_s: float | None


class TaskShareView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is not finished, with what it gets in pushes a second, as an app does.

    `left` is absent while its total is not known, `eta_ms` (Unix ms) where its end is unknown.
    `slots` are those that it holds, as processes said up to 5 s ago: absent of tasks of the pool,
    and where one that is not among the twenty with most may hold some.
    """

    task: str
    name: str
    app: str
    level: str
    sink: str
    quota: int
    state: str
    reason: str
    left: int | None
    observed_per_s: float | None
    entitled_per_s: float | None
    eta_ms: int | None
    slots: int | None = None


class HeldView(msgspec.Struct, frozen=True):
    """What keeps tasks from what they would get; `command` mends it, or shows more of it.

    `what` is like `sink/NAME`, `app/NAME` or `task/ID`; empty for all. `kind` is `unserved`,
    `rests`, `limited` (a rate), `spent` (a total), `late` (a task expires before its end), or how a
    task stands. `since_ms` (Unix ms) is absent where nobody knows. With `may_begin_sooner` this
    server has seen it from then on, and did not look before. `sink` is where a limit of an app or a
    task holds.
    """

    what: str
    why: str
    command: str
    since_ms: int | None
    kind: str = ""
    may_begin_sooner: bool = False
    sink: str = ""


class NowView(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets what now, seen at `at_ms` (Unix ms): it is older while something does not answer.

    Then `error` says what. `shares` has all levels and the 50 apps that are entitled to most,
    `tasks` the 50 that get or are entitled to most; `states` counts all that are not finished by
    how they stand, `processes` those that dispatch.
    """

    at_ms: int
    error: str | None
    verdict: VerdictView
    sinks: Sequence[SinkNowView]
    shares: Sequence[ShareNowView]
    tasks: Sequence[TaskShareView]
    held: Sequence[HeldView]
    states: Mapping[str, int]
    processes: int


class GetNow(Operation[NowView], frozen=True, kw_only=True):
    """Show who gets what of each sink, beside their fair share, and what holds it.

    Of what is away the last picture stays, with its age.
    """

    method, path, role, of = "GET", "/now", Role.VIEWER, Of.APPS
    commands = ("top",)

    async def run(self, at: Session) -> NowView:
        from pushlane.now.picture import shares
        from pushlane.now.ring import largest_of
        from pushlane.now.verdict import held, to_show, verdict
        from pushlane.now.view import view_of

        view = view_of(at.backend)
        now = await view.picture(at.backend)
        mine, holds = now.tasks, view.holds
        if (apps := at.apps) is not None:
            mine = [one for one in now.tasks if one.task.app in apps]
            holds = held(now, mine)
        sinks = {one.sink for one in (mine if apps is not None else ())}
        said = verdict(now, mine, holds)
        would = await _would(view, now, mine, said.hold)
        return NowView(
            at_ms=now.at_ms,
            error=str(view.error) if view.error else None,
            verdict=VerdictView(said.text, would, said.command),
            sinks=[
                _sink_view(one, apps is None)
                for one in now.sinks
                if apps is None or one.name in sinks
            ],
            shares=[
                _share_view(one) for one in _largest(now.shares if apps is None else shares(mine))
            ],
            tasks=[_task_view(one) for one in largest_of(mine, SHOWN)],
            held=[_held_view(one, view.spans.of(one)) for one in to_show(holds)[:_MOST_HELD]],
            states=_states(mine),
            processes=sum(one.kind == "dispatcher" for one in now.processes),
        )


async def _would(view: View, now: Picture, mine: Sequence[TaskPicture], hold: Held | None) -> str:
    """Say what lifting a limit that holds tasks would do; empty where none does."""
    from pushlane.now.verdict import without

    if hold is None or hold.limit is None:
        return ""
    subject = hold.limit
    [sink] = [one for one in now.sinks if one.name == hold.sink]
    ids = {one.task.id for one in mine}
    return await view.once(
        (subject, hold.sink, frozenset({one.task.app for one in mine})),
        lambda: asyncio.to_thread(without, sink, subject, ids, {}),
    )


def _largest(found: Sequence[Share]) -> list[Share]:
    """Return all levels, and of their apps those with most, in the order that they have."""
    apps = nlargest(SHOWN, (one for one in found if one.app is not None), key=_rate_of)
    chosen = {(one.sink, one.level, one.app) for one in apps}
    return [one for one in found if one.app is None or (one.sink, one.level, one.app) in chosen]


def _rate_of(one: Share) -> tuple[float, float]:
    return one.entitled_per_s or 0.0, one.observed_per_s or 0.0


def _states(tasks: Sequence[TaskPicture]) -> dict[str, int]:
    return {str(state): count for state, count in Counter(map(_STATE, tasks)).items()}


def _sink_view(one: SinkPicture, is_whole: bool) -> SinkNowView:
    sink = one.load.sink
    resting = [each.resting for each in sink.stands if each.resting is not None]
    text = min(resting, key=lambda each: each.since_ms).why if resting else ""
    if not is_whole:
        return SinkNowView(one.name, len(sink.stands), None, None, None, text)
    return SinkNowView(
        one.name, len(sink.stands), sink.slots, sink.in_flight, round(sink.per_s, 2), text
    )


def _share_view(one: Share) -> ShareNowView:
    rates = _rounded(one.observed_per_s), _rounded(one.entitled_per_s)
    return ShareNowView(one.sink, one.level.value, one.app, one.tasks, one.left, *rates)


def _task_view(one: TaskPicture) -> TaskShareView:
    task = one.task
    return TaskShareView(
        task=task.id,
        name=task.name,
        app=task.app,
        level=task.level.value,
        sink=one.sink,
        quota=task.quota,
        state=str(one.status.state),
        reason=one.status.reason,
        left=one.left,
        observed_per_s=_rounded(one.observed_per_s),
        entitled_per_s=_rounded(one.entitled_per_s),
        eta_ms=None if one.ends_at_ms is None else round(one.ends_at_ms),
        slots=one.slots,
    )


def _rounded(per_s: float | None) -> float | None:
    return None if per_s is None else round(per_s, 2)


def _held_view(one: Held, span: Span | None) -> HeldView:
    since_ms = one.since_ms or (span.from_ms if span else None)
    is_open = not one.since_ms and span is not None and span.may_begin_sooner
    sink = "" if one.subject == f"sink/{one.sink}" else one.sink
    return HeldView(one.subject, one.why, one.command, since_ms, one.kind, is_open, sink)
