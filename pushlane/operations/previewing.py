"""Previews: what a change would do, to all ends or to how many, and doing just what was looked at.

The change itself is done to a copy in memory of what it changes, so a preview refuses what the
change would. The answer has a token: the change, the tag of what it changes, and what was shown,
signed with a key that all processes share. Whoever applies it gets the preview made anew, and the
change only while that is no worse.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from heapq import nsmallest
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.task import State, Task, Weights, now_ms
from pushlane.model.access import Access
from pushlane.model.documents import DocumentStore
from pushlane.model.limits import Limit, Subject, limit_of
from pushlane.model.load import SinkLoad, Standing, sink_now
from pushlane.operations.counting import (
    COUNTED,
    Counted,
    CountView,
    count,
    same_again,
    shown_parameters,
)
from pushlane.operations.doing import do, refuse
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.receiving import CreateTask
from pushlane.operations.session import Beside, Session, tag_of
from pushlane.operations.shares import (
    ClearAppQuota,
    ClearLimit,
    SetAppQuota,
    SetLevels,
    SetLimit,
    subject_of,
)
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    PauseTask,
    PromoteTask,
    ResumeTask,
    SetQuota,
)
from pushlane.operations.views import plain
from pushlane.util.errors import NotAllowed, Overtaken, PreviewChanged

if TYPE_CHECKING:
    from pushlane.diagnosis.preview import EndMoved, Flows, Moved, PartMoved

VALID_S = 600
_KEY = "preview-key"
_PREFIX = "pv_"  # else a token might begin as an option of a command does
SHOWN = 100
"""So many ends and parts are shown at most."""

NEW = "new"
"""The id of a task that would be made, in its preview."""

_MOST_MISSED = 500
_LATER_PART, _LATER_S = 0.2, 60.0
_MORE_PART = 0.2

PREVIEWED: tuple[type[Operation[Any]], ...] = (
    *(SetQuota, PromoteTask, DemoteTask, PauseTask, ResumeTask, CancelTask),
    *(SetLevels, SetLimit, ClearLimit, SetAppQuota, ClearAppQuota),
    CreateTask,
    *COUNTED,
)
"""What can be previewed."""

_KINDS = {kind.word(): kind for kind in PREVIEWED}
_OF_TASKS = (SetQuota, PromoteTask, DemoteTask, PauseTask, ResumeTask, CancelTask)


class EndView(msgspec.Struct, frozen=True, kw_only=True):
    """When a task ends before and after, in Unix ms; absent where it does not, as while paused.

    One that would be made is `new`, unless it has an id, and comes first. Neither it nor one that
    the change itself ends or pauses is counted as later or sooner.
    `expiry` is absent where it has none or keeps it as before; else it is `missed`, `kept` (it was
    missed before) or `still missed`.
    """

    task: str
    name: str
    app: str
    level: str
    before_ms: int | None
    after_ms: int | None
    expires_at_ms: int | None
    expiry: str | None


class PartView(msgspec.Struct, frozen=True):
    """The part of a sink, from 0 to 1, of a level, or of an app at a level; it moves."""

    sink: str
    level: str
    app: str | None
    before: float
    after: float


class OthersView(msgspec.Struct, frozen=True):
    """Tasks of apps that the caller does not see: how many end later, sooner, and miss or keep."""

    later: int
    sooner: int
    missed: int
    kept: int


class PreviewView(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would do now. `ends` are the tasks that it moves most; all are counted.

    `token` applies it until `valid_until_ms` (Unix ms). `untold` counts tasks whose end nobody can
    tell: of open total, with pushes that wait for their time, or at a sink of which nothing is
    known. `resting` are sinks that rest: ends are told as if they did not.

    `counts` say how many are changed by what moves no end, as a retry of dead pushes, and what goes
    through a sink whose limits it changes; the 100 largest. Of more than 100,000 dead pushes
    `is_cut` tells that they are not all counted. `parameters` are without recipients.
    """

    operation: str
    parameters: dict[str, Any]
    token: str
    valid_until_ms: int
    ends: Sequence[EndView]
    later: int
    sooner: int
    missed: int
    kept: int
    untold: int
    parts: Sequence[PartView]
    resting: Sequence[str]
    others: OthersView | None
    counts: Sequence[CountView] = ()
    is_cut: bool = False


class AppliedView(msgspec.Struct, frozen=True):
    """A change that was previewed and is done, with what it shows; a retry shows each task."""

    operation: str
    done: dict[str, Any] | list[dict[str, Any]]


class Preview(Operation[PreviewView], frozen=True, kw_only=True):
    """Say what a change would do: who ends when before and after, and whose share moves.

    Of what moves no end, as suppressions and dead pushes, it says how many it would change. Nothing
    is changed. The token in the answer does it, while that is no worse than it was shown.
    """

    method, path, role, of = "POST", "/preview", Role.VIEWER, Of.APPS

    operation: Annotated[str, Meta(description=f"One of: {', '.join(_KINDS)}.")]
    parameters: Annotated[
        dict[str, Any], Meta(description="Its fields, those of its path too.")
    ] = msgspec.field(default_factory=dict)

    async def run(self, at: Session) -> PreviewView:
        return (await _look(at, asked(self.operation, self.parameters))).view


class Apply(Operation[AppliedView], frozen=True, kw_only=True):
    """Do a change just as it was previewed.

    Refused, with the preview of now, when somebody has changed the same meanwhile, another task
    misses its expiry, one ends later than was shown by over a fifth and a minute, or another sink
    rests; of what is counted when it is of others too, or over a fifth more.
    """

    method, path, role, of = "POST", "/apply", Role.SUBMITTER, Of.APPS
    commands = ("apply",)
    changes = True

    token: Annotated[str, Meta(description="That of a preview.", max_length=200_000)]

    async def run(self, at: Session) -> AppliedView:
        seen = await _opened(at, self.token)
        operation = same_again(_KINDS[seen.operation], seen.parameters, seen.hashes)
        now = await _look(at, operation)
        if worse := _worse(seen, now):
            raise PreviewChanged(f"{worse}: preview the change again", plain(now.view))
        beside = Beside(frozenset([seen.tag]))
        try:
            shown = await do(at.backend, at.settings, at.caller, operation, beside=beside)
        except Overtaken as error:
            told = "somebody has changed the same since the preview: preview the change again"
            raise PreviewChanged(told, plain(now.view)) from error
        return AppliedView(seen.operation, plain(shown))


def asked(word: str, parameters: Mapping[str, Any]) -> Operation[Any]:
    """Return the operation of this name. Raises BadInput for none, or no such parameters."""
    kind = _KINDS.get(word)
    if kind is None:
        raise BadInput(f"{word[:40]!r} cannot be previewed; these can: {', '.join(_KINDS)}")
    try:
        made: Operation[Any] = msgspec.convert(dict(parameters), kind)
    except msgspec.ValidationError as error:
        names = ", ".join(kind.__struct_fields__)
        raise BadInput(f"{word}: {error}; it has {names}") from error
    return made


class _Said(msgspec.Struct, frozen=True):
    """What a token holds: the change, the tag of what it changes, and what was shown of it.

    `misses` counts the tasks that miss their expiry; `missed` are marks of them, of very many some.
    In the same way `counted` are marks of whom `subjects` counts, of whom `changed` are changed in
    all. `hashes` are of the values that are suppressed, or no longer.
    """

    operation: str
    parameters: dict[str, Any]
    who: str
    until_ms: int
    tag: str
    ends: dict[str, float | None]
    misses: int
    missed: list[str]
    resting: list[str]
    at_ms: int
    counted: list[str] = []
    subjects: int = 0
    changed: int = 0
    hashes: bytes = b""

    def is_missed_by_another(self, seen: _Said) -> bool:
        """Tell whether a task misses its expiry that did not; of very many, whether more do."""
        if seen.misses > len(seen.missed):
            return self.misses > seen.misses
        return not {*self.missed} <= {*seen.missed}

    def is_of_others(self, seen: _Said) -> bool:
        """Tell whether something of another is changed too; of very many, whether of more."""
        if seen.subjects > len(seen.counted):
            return self.subjects > seen.subjects
        return not {*self.counted} <= {*seen.counted}


@dataclass(frozen=True)
class _Copy(Session):
    """A session on a copy of what is changed; it notes the tag that the change has to see."""

    tags: list[str] = field(default_factory=list)

    def require_seen(self, subject: str, values: Mapping[str, Any]) -> None:
        self.tags.append(tag_of(subject, values))


@dataclass(frozen=True)
class _World:
    """The state after a change; `was` is the task before, None for a new one."""

    tag: str
    was: Task | None
    weights: Weights
    task: Task | None
    subject: Subject | None
    limit: Limit

    @property
    def new(self) -> list[Standing]:
        """The task that comes, with as many pushes as are expected of it."""
        if self.task is None or self.was is not None:
            return []
        return [Standing(self.task, self.task.total)]


@dataclass(frozen=True)
class _Here:
    """What a change is about, as it was at `at_ms`: each sink with all its tasks, and what rests.

    `flows` are kept for other changes of the same.
    """

    at_ms: int
    loads: Sequence[tuple[SinkLoad, Sequence[Standing]]]
    resting: list[str]
    flows: Flows


@dataclass(frozen=True)
class _Looked:
    """A preview, what its token holds, and all ends after the change that the caller sees."""

    view: PreviewView
    said: _Said
    ends: Mapping[str, float | None]


async def _look(at: Session, operation: Operation[Any]) -> _Looked:
    """Make the preview of an operation, as things are now."""
    from pushlane.diagnosis.preview import compare

    refuse_unseen(at, operation)
    if isinstance(operation, COUNTED):
        return await _told_counts(at, operation, await count(at, operation))
    world = await _changed(at, operation)
    here = await _here(at, world)
    moved = [
        # of many tasks it takes a while, in which others are answered
        await asyncio.to_thread(
            compare, load, some, lambda one: _with(one, world), here.flows, world.new
        )
        for load, some in here.loads
    ]
    return await _told(at, operation, world, moved, here)


async def _told_counts(at: Session, operation: Operation[Any], found: Counted) -> _Looked:
    """Return the preview of what moves no end."""
    changed, at_ms = found.changed, now_ms()
    said = _Said(
        operation=operation.word(),
        parameters=shown_parameters(operation),
        who=at.caller.name,
        until_ms=at_ms + VALID_S * 1000,
        tag="",
        ends={},
        misses=0,
        missed=[],
        resting=[],
        at_ms=at_ms,
        counted=[_mark(of) for of in [*changed][:_MOST_MISSED]],
        subjects=len(changed),
        changed=sum(changed.values()),
        hashes=found.hashes,
    )
    view = PreviewView(
        operation=said.operation,
        parameters=said.parameters,
        token=_signed(said, await _key(at.backend.documents)),
        valid_until_ms=said.until_ms,
        ends=(),
        **{"later": 0, "sooner": 0, "missed": 0, "kept": 0, "untold": 0},
        parts=(),
        resting=(),
        others=None,
        counts=found.counts[:SHOWN],
        is_cut=found.is_cut,
    )
    return _Looked(view, said, {})


def refuse_unseen(at: Session, operation: Operation[Any]) -> None:
    """Refuse to tell what the caller may not see: a role that only looks may preview all else."""
    caller = replace(at.caller, access=Access(Role.ADMIN, at.apps))
    refuse(Session(at.backend, at.settings, caller), operation)


async def _changed(at: Session, operation: Operation[Any]) -> _World:
    """Do the operation to a copy of what it changes. Raises as it does."""
    from pushlane.backends.memory import MemoryBackend

    if isinstance(operation, CreateTask):
        return await _made(at, operation)
    task: Task | None = None
    subject: Subject | None = None
    if isinstance(operation, _OF_TASKS):
        task = await at.task(operation.task)
        operation = msgspec.structs.replace(operation, task=task.id)
    elif isinstance(operation, SetLimit | ClearLimit):
        subject = await subject_of(at, operation.subject)
        operation = msgspec.structs.replace(operation, subject=str(subject))
        task = await at.task(subject.name) if subject.kind == "task" else None
    elif isinstance(operation, SetAppQuota | ClearAppQuota):
        subject = Subject("app", operation.app)
    async with MemoryBackend().connect() as copy:
        if task is not None:
            await copy.registry.add(task)
        await copy.registry.set_weights(
            await at.backend.registry.weights(), over=await copy.registry.weights()
        )
        if subject and (kept := await at.backend.documents.get("limit", str(subject))):
            await copy.documents.put("limit", str(subject), kept.body, None)
        session = _Copy(copy, at.settings, at.caller)
        await operation.run(session)
        return _World(
            session.tags[0],
            task,
            await copy.registry.weights(),
            task and await copy.registry.get(task.id),
            subject,
            await limit_of(copy.documents, subject) if subject else Limit(),
        )


async def _made(at: Session, operation: CreateTask) -> _World:
    """Return what there would be with a new task. Raises what refuses that."""
    task = msgspec.structs.replace(
        await operation.accepted(at),
        id=operation.id or NEW,
        state=State.PAUSED if operation.paused else State.RUNNING,
        total=operation.expects or None,
    )
    limit = Limit(rate_per_s=operation.rate_per_s, in_flight=operation.in_flight)
    subject = None if limit.is_none else Subject("task", task.id)
    return _World("", None, await at.backend.registry.weights(), task, subject, limit)


def _with(load: SinkLoad, world: _World) -> SinkLoad:
    """Return a load after the change."""
    standings: Sequence[Standing] = load.standings
    if (task := world.task) is not None:
        standings = [
            msgspec.structs.replace(one, task=task) if one.task.id == task.id else one
            for one in standings
        ]
    limits = {**load.limits, world.subject: world.limit} if world.subject else load.limits
    return replace(load, standings=standings, weights=world.weights, limits=limits)


async def _here(at: Session, world: _World) -> _Here:
    """Look at what the change is about."""
    from pushlane.diagnosis.look import backlog, dispatchers, loads

    processes = await dispatchers(at.backend)
    names = {name for process in processes for name in process.sink_names}
    if world.task is not None:
        names = {world.task.chain[0]}
    elif world.subject is not None and world.subject.kind == "sink":
        names = {world.subject.name}
    seen = await backlog(at.backend, world.was)
    by_sink = {
        name: some for name in sorted(names) if (some := seen.by_sink.get(name, ())) or world.new
    }
    tasks = (one.task for some in by_sink.values() for one in some)
    load_of, _ = await loads(at.backend, tasks, seen.at_ms)
    found = [
        (load_of(sink=sink_now(processes, name), standings=()), some)
        for name, some in by_sink.items()
    ]
    resting = {one.name for process in processes for one in process.served if one.resting}
    return _Here(seen.at_ms, found, sorted(resting & names), seen.flows)


async def _told(
    at: Session,
    operation: Operation[Any],
    world: _World,
    moved: Sequence[Moved],
    here: _Here,
) -> _Looked:
    at_ms = here.at_ms
    ends = [one for sink in moved for one in sink.ends]
    seen, hidden = ends, []
    if at.apps is not None:
        seen = [one for one in ends if at.sees(one.task.app)]
        hidden = [one for one in ends if not at.sees(one.task.app)]
    shown = _shown(seen, at_ms)
    missing = [one.task.id for one in ends if one.misses(at_ms)[1]]
    later, sooner, missed, kept = _counted(seen, at_ms)
    said = _Said(
        operation=type(operation).word(),
        parameters=msgspec.to_builtins(operation),
        who=at.caller.name,
        until_ms=now_ms() + VALID_S * 1000,
        tag=world.tag,
        ends={one.task.id: one.after_s for one in shown},
        misses=len(missing),
        missed=[_mark(task_id) for task_id in missing[:_MOST_MISSED]],
        resting=here.resting,
        at_ms=at_ms,
    )
    parts = [one for sink in moved for one in sink.parts if not one.app or at.sees(one.app)]
    view = PreviewView(
        operation=said.operation,
        parameters=said.parameters,
        token=_signed(said, await _key(at.backend.documents)),
        valid_until_ms=said.until_ms,
        ends=[_end_view(one, at_ms) for one in shown],
        later=later,
        sooner=sooner,
        missed=missed,
        kept=kept,
        untold=sum(one.untold for one in moved),
        parts=[_part_view(one) for one in parts[:SHOWN]],
        resting=here.resting,
        others=OthersView(*_counted(hidden, at_ms)) if at.apps is not None else None,
        counts=[*_at_sink(world, here)],
    )
    return _Looked(view, said, {one.task.id: one.after_s for one in seen})


def _at_sink(world: _World, here: _Here) -> Iterator[CountView]:
    """Count what goes through a sink whose limits are changed, which holds where no end is told."""
    if world.subject is None or world.subject.kind != "sink":
        return
    active = [one for _, some in here.loads for one in some if one.is_active()]
    known = sum(one.left or 0 for one in active)
    least = "at least " if any(one.left is None for one in active) else ""
    tasks = "1 task" if len(active) == 1 else f"{len(active):,} tasks"
    told = f"concerns {tasks} with {least}{known:,} pushes left at {world.subject}"
    yield CountView("concerns", str(world.subject), known, told)


def _shown(ends: Sequence[EndMoved], at_ms: int) -> list[EndMoved]:
    """Choose the ends to show: what is new, expiries missed or kept, then what moves most."""

    def rank(one: EndMoved) -> tuple[bool, bool, float]:
        is_told = _expiry(one, at_ms) in ("missed", "kept")
        return not one.is_new, not is_told, 0.0 if one.is_new else -abs(one.later_s)

    some = (one for one in ends if one.is_moved or rank(one)[:2] != (True, True))
    return nsmallest(SHOWN, some, key=rank)


def _counted(ends: Sequence[EndMoved], at_ms: int) -> tuple[int, int, int, int]:
    """Count the tasks that end later, sooner, now miss their expiry, and now keep it.

    One that the change itself ends or pauses ends neither later nor sooner.
    """
    moved = [one for one in ends if one.is_moved and not one.is_stopped]
    expiries = [_expiry(one, at_ms) for one in ends]
    later = sum(one.later_s > 0 for one in moved)
    return later, len(moved) - later, expiries.count("missed"), expiries.count("kept")


def _expiry(one: EndMoved, at_ms: int) -> str | None:
    if not one.task.expires_at_ms:
        return None
    before, after = one.misses(at_ms)
    if before and after:
        return "still missed"
    return "missed" if after else "kept" if before else None


def _end_view(one: EndMoved, at_ms: int) -> EndView:
    return EndView(
        task=one.task.id,
        name=one.task.name,
        app=one.task.app,
        level=one.task.level.value,
        before_ms=None if one.before_s is None else at_ms + round(one.before_s * 1000),
        after_ms=None if one.after_s is None else at_ms + round(one.after_s * 1000),
        expires_at_ms=one.task.expires_at_ms or None,
        expiry=_expiry(one, at_ms),
    )


def _part_view(one: PartMoved) -> PartView:
    parts = round(one.before, 4), round(one.after, 4)
    return PartView(one.sink, one.level, one.app or None, *parts)


def _worse(seen: _Said, now: _Looked) -> str:
    """Say in what the preview of now is worse than what was shown; empty when in nothing."""
    if now.said.is_of_others(seen):
        return "it would change something of others too"
    if now.said.changed > seen.changed * (1 + _MORE_PART):
        return f"it would change {now.said.changed:,} now, and {seen.changed:,} were shown"
    if now.said.is_missed_by_another(seen):
        return "another task would miss its expiry now"
    if seen.resting != now.said.resting:
        rest = ", ".join(now.said.resting) or "none"
        return f"other sinks rest now ({rest})"
    for task_id, shown_s in seen.ends.items():
        if shown_s is None or task_id not in now.ends:  # it had no end, or has ended
            continue
        end_s = now.ends[task_id]
        if end_s is None:
            return f"task {task_id} would not end any more"
        late_s = (now.said.at_ms - seen.at_ms) / 1000 + end_s - shown_s
        if late_s > max(_LATER_PART * shown_s, _LATER_S):
            return f"task {task_id} would end {late_s:,.0f} s later than was shown"
    return ""


def _mark(task_id: str) -> str:
    """Return what stands for a task in a token, which others may read."""
    return sha256(task_id.encode()).hexdigest()[:12]


async def _key(documents: DocumentStore) -> bytes:
    """Return the key of all processes; the first that needs it makes it."""
    await documents.put(_KEY, "hmac", secrets.token_bytes(32), None)
    kept = await documents.get(_KEY, "hmac")
    assert kept is not None
    return kept.body


def _signed(said: _Said, key: bytes) -> str:
    body = zlib.compress(msgspec.msgpack.encode(said))
    return _PREFIX + urlsafe_b64encode(hmac.digest(key, body, "sha256") + body).decode()


async def _opened(at: Session, token: str) -> _Said:
    """Return what a token holds. Raises BadInput for none of ours, an old one, or another's."""
    try:
        raw = urlsafe_b64decode(token.removeprefix(_PREFIX).encode())
    except ValueError:
        raw = b""
    mac, body = raw[:32], raw[32:]
    key = await _key(at.backend.documents)
    if not body or not hmac.compare_digest(mac, hmac.digest(key, body, "sha256")):
        raise BadInput(
            "this is not the token of a preview, or it is incomplete: preview the change again"
        )
    said = msgspec.msgpack.decode(zlib.decompress(body), type=_Said)
    if said.until_ms < now_ms():
        raise BadInput("the preview is over ten minutes old: preview the change again")
    if said.who != at.caller.name:
        raise NotAllowed(
            f"the preview was made by {said.who}; you are {at.caller.name}: make your own"
        )
    return said
