"""Operations on sinks, as far as live processes and tasks tell of them: who serves each, and how.

What the settings of a process say of its sinks is no part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.backends.ports import TaskQuery
from pushlane.core.errors import BadInput
from pushlane.core.task import ACTIVE_STATES, Task, now_ms
from pushlane.model.documents import DocumentStore
from pushlane.model.presence import LiveTarget, Process, SinkTarget, targets_by_sink, told_apart
from pushlane.model.targets import Check, TargetHistory, accept, target_history
from pushlane.operations.operation import ETag, Of, Operation, Role
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session, tag_of
from pushlane.util.errors import NotFound, Overtaken

_LOOKED_AT = 1_000
_INSTEAD = {
    "null": "throws pushes away",
    "print": "only prints pushes",
    "log": "only writes pushes to a file",
}


class SinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A sink: by how many processes it is served now, what it delivers to, and how it stands.

    `kind` is absent where no live process says it.
    """

    sink: str
    kind: str | None
    served_by: int
    state: str
    targets: Sequence[SinkTarget]


class ListSinks(Operation[list[SinkView]], frozen=True, kw_only=True):
    """List the sinks that live processes serve or unfinished tasks go to, and how each stands.

    Of the tasks the newest 1,000 are looked at.
    """

    method, path, role, of = "GET", "/sinks", Role.VIEWER, Of.EVERYTHING
    commands = ("sinks list",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[SinkView]:
        newest = await at.backend.registry.page(TaskQuery(ACTIVE_STATES), most=_LOOKED_AT)
        processes = await at.backend.presence.list()
        served = {name for process in processes for name in process.sink_names}
        used = {name for task in newest.tasks for name in task.chain}
        shown = page(at, self, sorted(served | used), str)
        return [_sink_view(name, processes, newest.tasks) for name in shown]


class AcceptedView(msgspec.Struct, frozen=True):
    """Whether final answers of these targets are believed, though some may never have delivered."""

    sink: str
    accepted: bool
    targets: Sequence[SinkTarget]


class GetAccepted(Operation[AcceptedView], frozen=True, kw_only=True):
    """Show whether final answers of what a sink delivers to are believed in any case.

    Those of a target that has delivered are. It is about what live processes deliver to.
    """

    method, path, role, of = "GET", "/sinks/{sink}/accept", Role.VIEWER, Of.EVERYTHING
    etag = ETag.SHOWN

    sink: Annotated[str, Meta(description="Its name.")]

    async def run(self, at: Session) -> AcceptedView:
        targets = await _live_targets(at, self.sink)
        if not targets:
            raise NotFound(f"no live process serves sink {self.sink[:60]}")
        found = [await target_history(at.backend.documents, one.hash) for one in targets]
        values = _accepted(found)
        at.show(_subject(self.sink), values)
        return AcceptedView(self.sink, values["accepted"], targets)


class AcceptSink(Operation[AcceptedView], frozen=True, kw_only=True):
    """Believe a sink that has never delivered and gives final answers, like HTTP 404, to all.

    It rests, as its URL may be wrong. From now on its pushes die by such answers, in every process,
    until it delivers. It is about what live processes deliver to.
    """

    method, path, role, of = "POST", "/sinks/{sink}/accept", Role.ADMIN, Of.EVERYTHING
    commands = ("sinks accept",)
    changes = True
    etag = ETag.NEEDED

    sink: Annotated[str, Meta(description="Its name.")]
    undo: Annotated[bool, Meta(description="Believe them no longer.")] = False
    target: Annotated[
        SinkTarget | None, Meta(description="Its target, if no live process serves it.")
    ] = None

    async def run(self, at: Session) -> AcceptedView:
        documents, subject = at.backend.documents, _subject(self.sink)
        targets = await new_targets(documents, self.sink, await self._targets(at))
        known = [await target_history(documents, one.hash) for one in targets]
        before, after = _accepted(known), {"accepted": not self.undo}
        at.require_seen(subject, before)
        for one, seen in zip(targets, known, strict=True):
            await accept(
                documents, one.hash, 0 if self.undo else now_ms(), _same(at, subject, seen)
            )
        at.changed(subject, before, after)
        at.show(subject, after)
        return AcceptedView(self.sink, not self.undo, targets)

    async def _targets(self, at: Session) -> list[SinkTarget]:
        """Return what live processes deliver to by this name, else what was given.

        Raises:
            BadInput: nobody says what the sink delivers to.
        """
        if announced := await _live_targets(at, self.sink):
            return announced
        if self.target is None:
            raise BadInput(
                f"no live process serves sink {self.sink}; start pushlane dispatch with it first"
            )
        return [self.target]


async def _live_targets(at: Session, sink: str) -> list[SinkTarget]:
    """Return what live processes deliver to by this name; nothing where none serves it.

    Raises:
        BadInput: those that serve it deliver to nothing.
    """
    serving = [one for one in await at.backend.presence.list() if sink in one.sink_names]
    known = [one.at(sink).target for one in serving]
    announced = {one.hash: one for one in known if one is not None and one.delivers}
    if serving and not announced:
        raise BadInput(
            f"the processes that serve sink {sink} deliver to nothing whose answers could be "
            "accepted, or run an older version"
        )
    return list(announced.values())


def _subject(sink: str) -> str:
    return f"sink/{sink}"


def _accepted(histories: Sequence[TargetHistory]) -> dict[str, Any]:
    """Return what operators have set of targets. One that has delivered needs nobody's word."""
    return {"accepted": all(one.accepted_at_ms or one.delivered_at_ms for one in histories)}


def _same(at: Session, subject: str, seen: TargetHistory) -> Check | None:
    """Return what refuses a target that somebody has set since it was looked at here."""

    def check(there: TargetHistory) -> None:
        if bool(there.accepted_at_ms) is not bool(seen.accepted_at_ms):
            values = _accepted([there])
            raise Overtaken(subject, values, tag_of(subject, values))

    return None if at.beside.seen is None else check


async def new_targets(
    documents: DocumentStore, name: str, targets: Sequence[SinkTarget]
) -> list[SinkTarget]:
    """Return those that have never delivered: while a rollout lasts, others may be there too.

    Raises:
        BadInput: all of them have delivered.
    """
    histories = [await target_history(documents, one.hash) for one in targets]
    new = [
        one for one, history in zip(targets, histories, strict=True) if not history.delivered_at_ms
    ]
    if not new:
        raise BadInput(
            f"sink {name}: {targets[0]} has delivered before, so there is nothing to accept; if it "
            "gives final answers to all now, it rests, and is believed after two hours"
        )
    return new


def _sink_view(name: str, processes: Sequence[Process], tasks: Sequence[Task]) -> SinkView:
    serving = [one for one in processes if name in one.sink_names and not one.is_starting]
    targets = targets_by_sink(processes).get(name, [])
    unserved = f"{UNSERVED}{_waiting(name, tasks)}"
    return SinkView(
        sink=name,
        kind=", ".join(told_apart([one.target for one in targets])) or None,
        served_by=len(serving),
        state=_state(name, serving, targets) if serving else unserved,
        targets=[one.target for one in targets],
    )


UNSERVED = "nobody serves it"


def _waiting(name: str, tasks: Sequence[Task]) -> str:
    """Tell how many of these tasks begin at this sink, else how many may go on to it."""
    if first := sum(name == task.chain[0] for task in tasks):
        return f", {first:,} tasks wait" if first > 1 else ", 1 task waits"
    if later := sum(name in task.chain for task in tasks):
        return f", {later:,} tasks may go on to it" if later > 1 else ", 1 task may go on to it"
    return ""


def _state(name: str, serving: Sequence[Process], targets: Sequence[LiveTarget]) -> str:
    if len(targets) > 1:
        return f"{len(targets)} different targets"
    stands = [process.at(name).resting for process in serving]
    if resting := {one.why for one in stands if one is not None}:
        return "; ".join(sorted(resting))
    if all(one.target.delivers for one in targets):
        return "delivers"
    return instead(targets[0].target.kind)


def instead(kind: str) -> str:
    """Say what a sink that delivers nothing does with pushes."""
    return _INSTEAD.get(kind, "only checks pushes (a dry run)")
