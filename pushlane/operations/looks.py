"""Operations that look on: why anything waits, how a task went, what became of single pushes.

Recipients are masked, but in a push that is revealed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pushlane.backends.queries import receipt_hasher
from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_SEQ, Push, decode
from pushlane.core.task import State, Task, now_ms
from pushlane.model.counted import ENDS
from pushlane.model.states import STALLED, shown_state
from pushlane.operations.operation import Of, Operation, Role, read_by
from pushlane.operations.session import Caller, Session
from pushlane.operations.stories import read_story
from pushlane.operations.tasks import TaskWord
from pushlane.operations.waits import (
    WaitPartView,
    told_if_sent,
    told_of_many,
    untold_text,
    waits_so_far,
)
from pushlane.util.errors import NotAllowed, NotFound

if TYPE_CHECKING:
    from pushlane.diagnosis.look import Diagnosis
    from pushlane.diagnosis.overview import TaskNow
    from pushlane.diagnosis.results import ReceiptRow, Results
    from pushlane.diagnosis.story import Story, Wanted

_DIGITS = 4
_ENDED = frozenset(state for state in State if state.is_terminal)


class CauseView(msgspec.Struct, frozen=True):
    """One thing that a task waits for, since then (Unix ms) if that is known, and what to do."""

    cause: str
    detail: str
    since: int | None
    do: str


class WaitView(msgspec.Struct, frozen=True):
    """Pushes of a task that wait for their time, for one reason; times are Unix ms."""

    reason: str
    pushes: int
    first_due_ms: int
    last_due_ms: int


class WhyView(msgspec.Struct, frozen=True, kw_only=True):
    """What a task waits for, most important first, and how it goes on.

    `entitled_share` is the part of its sink that is its own, absent while it may not go;
    `observed_per_s` how fast it goes; `backlog` its pushes left, absent while its total is not
    known; `eta_s` the seconds until it is through, absent when that cannot be told: then `eta_note`
    may say why. `later` of its pushes wait for their time, as `waits` says. `shown_state` and
    `shown_reason` say how it stands, for people. `unread_limits` cannot be read, and are left out.
    `waited` says where the wait of what was delivered so far went, first the whole: empty where no
    store of reports tells it within 2 s.
    """

    task_id: str
    state: str
    shown_state: str
    shown_reason: str
    causes: Sequence[CauseView]
    entitled_share: float | None
    observed_per_s: float | None
    backlog: int | None
    eta_s: float | None
    eta_note: str
    later: int
    waits: Sequence[WaitView]
    unread_limits: Sequence[str]
    waited: Sequence[WaitPartView] = ()

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def so_far(self) -> str:
        """Say where the wait of what was delivered so far went; empty where that is not known."""
        if not (told := told_of_many(self.waited)):
            return ""
        return f"so far a push waited {told} (mean of {self.waited[0].n:,} delivered)"


class WhyTask(Operation[WhyView], frozen=True, kw_only=True):
    """Say what a task waits for now, most important first, and what to do about each.

    It looks twice, a second apart, for how fast the task goes.
    """

    method, path, role, of = "GET", "/tasks/{task}/why", Role.VIEWER, Of.TASK
    commands = ("why",)

    task: TaskWord

    async def run(self, at: Session) -> WhyView:
        from pushlane.diagnosis.look import why

        task = await at.task(self.task)
        found, waited = await asyncio.gather(
            why(at.backend, task.id, at.settings, shows_targets=at.apps is None),
            waits_so_far(at, task),
        )
        return _why_view(at, found, waited)


class LevelOverview(msgspec.Struct, frozen=True):
    """A level at a sink: its tasks, their pushes, and its part of the sink, from 0 to 1.

    `entitled` is the part that it has a right to now, `observed` that of what went in a minute.
    """

    level: str
    tasks: int
    left: int
    later: int
    entitled: float
    observed: float


class SinkOverview(msgspec.Struct, frozen=True):
    """How a sink stands over all processes: `resting` says why it gets nothing, or less.

    `in_doubt` counts tasks that pushes named just now and the registry did not have.
    """

    name: str
    served_by: int
    slots: int
    in_flight: int
    per_s: float
    resting: str
    rests: bool
    left: int
    later: int
    levels: Sequence[LevelOverview]
    in_doubt: int


class TaskOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A task and how it stands. `left` is absent while its total is not known; `later` of them wait
    for their time. Its pushes could have gone `since` then (Unix ms).
    """

    task_id: str
    name: str
    level: str
    sink: str
    shown_state: str
    shown_reason: str
    left: int | None
    later: int
    since: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All that waits. `states` counts tasks by how they stand; `tasks` are those to look at first.

    `limits` says which of them bind now. `unread_limits` cannot be read, and are left out. `is_cut`
    tells that there are more tasks than were read.
    """

    sinks: Sequence[SinkOverview]
    limits: Sequence[str]
    tasks: Sequence[TaskOverview]
    states: Mapping[str, int]
    unread_limits: Sequence[str]
    is_cut: bool


class GetOverview(Operation[Overview], frozen=True, kw_only=True):
    """Say of all sinks and unfinished tasks what they wait for, the worst first."""

    method, path, role, of = "GET", "/overview", Role.VIEWER, Of.EVERYTHING
    commands = ("why",)

    async def run(self, at: Session) -> Overview:
        from pushlane.diagnosis.overview import overview

        found = await overview(at.backend)
        return Overview(
            sinks=msgspec.convert(found.sinks, list[SinkOverview], from_attributes=True),
            limits=found.limits,
            tasks=[_task_overview(one) for one in found.worst],
            states=dict(found.states),
            unread_limits=found.unread_limits,
            is_cut=found.is_cut,
        )


class TimesView(msgspec.Struct, frozen=True):
    """Durations in ms, over the `n` pushes of which both ends are known."""

    n: int
    min_ms: int
    p50_ms: int
    p99_ms: int
    max_ms: int


class ReasonCount(msgspec.Struct, frozen=True):
    """Counts the pushes that ended with one outcome for one reason."""

    outcome: str
    reason: str
    pushes: int


class ResultsView(msgspec.Struct, frozen=True, kw_only=True):
    """How a task went. `lacking` has, by outcome, what is counted and no receipt says.

    `total` is absent until its submit is complete. `reasons` are the most frequent of what is not
    delivered; `others` counts the rest. Of an outcome of which receipts lack they are the classes
    that the task has counted. `wait` is from when a delivered push could first go to its dispatch,
    `delivery` from there to the answer; absent where no push was delivered, as is the rate.
    `waits` says where the time of delivered pushes from submitted to dispatched went: first the
    whole, then its parts by cause, the largest first; empty where no receipt tells.
    `unread` counts bodies of the log that this version cannot read.
    """

    task_id: str
    name: str
    total: int | None
    counts: Mapping[str, int]
    lacking: Mapping[str, int]
    reasons: Sequence[ReasonCount]
    others: int
    first_at_ms: int
    last_at_ms: int
    per_s: float | None
    wait: TimesView | None
    delivery: TimesView | None
    waits: Sequence[WaitPartView] = ()
    unread: int

    @property
    def waits_untold(self) -> str:
        """Say of how many delivered pushes it is not known where their wait went; else nothing."""
        delivered = 0 if self.wait is None else self.wait.n
        return untold_text(delivered, self.waits[0].n if self.waits else 0)


class GetResults(Operation[ResultsView], frozen=True, kw_only=True):
    """Count by receipts how a task went: what was delivered, died of what, and took how long.

    Nothing is taken from the log of receipts.
    """

    method, path, role, of = "GET", "/tasks/{task}/results", Role.VIEWER, Of.TASK
    commands = ("results",)

    task: TaskWord

    async def run(self, at: Session) -> ResultsView:
        from pushlane.diagnosis.results import results_of

        task = await at.task(self.task)
        [progress] = await at.backend.registry.progress([task.id])
        [why] = await at.backend.registry.reasons([task.id])
        async with at.reads.one():
            said = await results_of(at.backend.receipts, task, progress, why)
        return results_view(task, said)


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt of a push; `recipient` is masked. Times are Unix ms.

    `waits` has, by cause, the ms from submitted to dispatched, over all attempts up to this one. It
    is absent where the version that wrote the receipt did not tell, and of events.
    """

    push: str
    task_id: str
    seq: int
    outcome: str
    reason: str
    attempt: int
    sink: str
    recipient: str
    submitted_at_ms: int
    dispatched_at_ms: int
    responded_at_ms: int
    trace_id: str
    waits: Mapping[str, int] | None = None

    @property
    def waited(self) -> str:
        return told_if_sent(self.waits, self.dispatched_at_ms)


class ReceiptsView(msgspec.Struct, frozen=True):
    """Receipts of pushes in the order of their times; of the task `task_id`, if one was named.

    With `is_cut` there are more than these, the last. `unread` counts bodies that cannot be read,
    `notes` say what else may be missing.
    """

    rows: Sequence[ReceiptView]
    is_cut: bool
    unread: int
    task_id: str | None
    notes: Sequence[str] = ()


def _recipient(what: str, given: Any) -> str:
    from pushlane.producers.suppress import usable_value

    return usable_value(given)


class ListReceipts(Operation[ReceiptsView], frozen=True, kw_only=True):
    """Say what became of the pushes that fit all that is given, attempt by attempt.

    Without a task the whole log is looked through. Operators may ask for all that one had whom some
    push was for, without knowing who that is.
    """

    method, path, role, of = "POST", "/receipts/search", Role.VIEWER, Of.APPS
    commands = ("results",)

    task: TaskWord | None = None
    seq: (
        Annotated[int, Meta(ge=1, le=MAX_SEQ, description="The number of a push of the task.")]
        | None
    ) = None
    recipient: (
        Annotated[str, read_by(_recipient), Meta(description="Whom the pushes were for.")] | None
    ) = None
    trace_id: Annotated[str, Meta(description="The trace id of the pushes.")] = ""
    recipient_of: Annotated[
        str, Meta(description="A push, TASK-SEQ: whom it was for. For operators.")
    ] = ""

    async def run(self, at: Session) -> ReceiptsView:
        from pushlane.diagnosis.results import begun_ms
        from pushlane.diagnosis.story import Wanted

        self._check(at)
        task = None if self.task is None else await at.task(self.task)
        wanted = Wanted(
            task_id=task.id if task else "",
            seq=self.seq,
            recipient_hash=await self._hash(at),
            trace_id=self.trace_id,
            apps=at.apps,
            since_ms=begun_ms(task) if task else 0,
        )
        story = await read_story(at, wanted)
        task_id = None if task is None else task.id
        return ReceiptsView(_rows(story), story.is_cut, story.unread, task_id, story.notes)

    def _check(self, at: Session) -> None:
        is_of_somebody = self.recipient is not None or self.recipient_of
        if self.seq is None and not is_of_somebody and not self.trace_id:
            raise BadInput("say which receipts: give a seq of the task, a recipient or a trace_id")
        if self.seq is not None and self.task is None:
            raise BadInput("a seq needs its task: give task_id, too")
        if self.recipient is not None and self.recipient_of:
            raise BadInput("give a recipient, or recipient_of: the push that was for them")
        if self.recipient_of:
            refuse_unless_operator(at.caller, "to look for whom a push was for")

    async def _hash(self, at: Session) -> int | None:
        """Return the hash of whom is asked for, None for anybody."""
        if self.recipient_of:
            return await _hash_of(at, self.recipient_of)
        if self.recipient is None:
            return None
        return await recipient_hash(at, _recipient("recipient", self.recipient))


async def recipient_hash(at: Session, recipient: str) -> int:
    """Return the hash that receipts have for a recipient."""
    hasher = await receipt_hasher(at.backend.receipts, at.settings)
    [hashed] = hasher.hashes([recipient])
    return hashed


async def _hash_of(at: Session, push: str) -> int:
    """Return the hash of whom a push was for. Raises NotFound where no receipt has it."""
    word, seq = push_parts(push)
    task = await at.task(word)
    story = await read_story(at, wanted_push(task, seq))
    found = next((row.recipient_hash for row in story.rows if row.recipient_hash), None)
    if found is None:
        raise NotFound(
            f"no receipt of push {task.id}-{seq} says whom it was for: it was not tried yet, "
            "receipts are off, or the log no longer keeps it"
        )
    return found


def wanted_push(task: Task, seq: int) -> Wanted:
    """Return what finds the receipts of one push."""
    from pushlane.diagnosis.results import begun_ms
    from pushlane.diagnosis.story import Wanted

    return Wanted(task_id=task.id, seq=seq, since_ms=begun_ms(task))


def refuse_unless_operator(caller: Caller, what: str) -> None:
    role = caller.access.role
    if not role.may(Role.OPERATOR):
        raise NotAllowed(f"{caller.name} has the role {role}, and {what} needs {Role.OPERATOR}")


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """What a push holds: whom it is for and what it says, by sink where it differs."""

    recipient: str
    title: str
    body: str
    data: Mapping[str, Any] | None
    addresses: Mapping[str, str] | None
    payloads: Mapping[str, Any] | None

    def __repr__(self) -> str:
        """Show nothing of it: it is somebody's."""
        return "MessageView(...)"


class PushView(msgspec.Struct, frozen=True, kw_only=True):
    """A push, what became of it, and what it holds, if that was asked for and is there.

    `outcome` and `reason` are absent until it has ended, and where no receipt says how it has.
    `task_state` is the stored state of its task, empty if the registry has that no more. `waits`
    has, by cause, the ms from when it was submitted to its last attempt; absent where that is not
    known. With `is_cut` there are more receipts than these; `unread` counts bodies of the log that
    cannot be read, `notes` say what else may be missing.
    """

    push: str
    task_id: str
    name: str
    task_state: str
    seq: int
    has_ended: bool
    outcome: str | None
    reason: str | None
    receipts: Sequence[ReceiptView]
    waits: Mapping[str, int] | None = None
    is_cut: bool
    unread: int
    notes: Sequence[str] = ()
    message: MessageView | None

    @property
    def waited(self) -> str:
        """Say where its wait went up to its last attempt; a dash if it was not sent."""
        return told_if_sent(self.waits, max((r.dispatched_at_ms for r in self.receipts), default=0))


SomePush = TypeVar("SomePush", bound=PushView)


class GetPush(Operation[PushView], frozen=True, kw_only=True):
    """Show what became of one push: each attempt, its end, and what the device said.

    Whom it was for and what it says is for operators, who ask for it: that is in the audit.
    """

    method, path, role, of = "GET", "/pushes/{push}", Role.VIEWER, Of.TASK
    commands = ("push show",)

    push: Annotated[str, Meta(description="TASK-SEQ, its id; the task by id, key or name.")]
    reveal: Annotated[
        bool, Meta(description="Recipient and content too, if its lane still has them.")
    ] = False

    async def run(self, at: Session) -> PushView:
        if self.reveal:
            refuse_unless_operator(at.caller, "to reveal a push")
        word, seq = push_parts(self.push)
        task = await at.task(word)
        refuse_none(task, seq)
        story = await read_story(at, wanted_push(task, seq))
        [has_ended] = await at.backend.registry.finished(task.id, [seq])
        message = await revealed(at, task, seq) if self.reveal else None
        return push_view(PushView, task, (task.id, seq), story, has_ended, message=message)


def _why_view(at: Session, found: Diagnosis, waited: Sequence[WaitPartView]) -> WhyView:
    task = found.task
    unread = found.unread_limits
    if at.apps is not None:
        unread = [name for name in unread if name in (f"task/{task.id}", f"app/{task.app}")]
    return WhyView(
        task_id=task.id,
        state=STALLED if found.is_stalled else shown_state(task, now_ms()),
        shown_state=found.status.state,
        shown_reason=found.status.reason,
        causes=[
            CauseView(one.name, one.detail, one.since_ms or None, one.do) for one in found.causes
        ],
        entitled_share=_rounded(found.entitled_share, 4),
        observed_per_s=_rounded(found.observed_per_s, 2),
        backlog=found.backlog,
        eta_s=_rounded(found.eta_s, 1),
        eta_note=found.eta_note,
        later=found.later,
        waits=[WaitView(one.reason, one.pushes, one.first_ms, one.last_ms) for one in found.waits],
        unread_limits=unread,
        waited=waited,
    )


def _rounded(number: float | None, places: int) -> float | None:
    """Return a number to so many places; of a small one four digits are kept."""
    if not number:
        return number
    return round(number, max(places, _DIGITS - 1 - math.floor(math.log10(abs(number)))))


def _task_overview(one: TaskNow) -> TaskOverview:
    return TaskOverview(
        task_id=one.task.id,
        name=one.task.name,
        level=one.task.level,
        sink=one.task.chain[0],
        shown_state=one.status.state,
        shown_reason=one.status.reason,
        left=one.left,
        later=one.later,
        since=one.since_ms,
    )


def results_view(task: Task, said: Results) -> ResultsView:
    """Return how a task went, as it is shown."""
    return ResultsView(
        task_id=task.id,
        name=task.name,
        total=task.total,
        counts={kind.value: count for kind, count in said.counts.items()},
        lacking={kind.value: count for kind, count in said.lacking.items()},
        reasons=[ReasonCount(kind.value, why, count) for kind, why, count in said.reasons],
        others=said.others,
        first_at_ms=said.first_at_ms,
        last_at_ms=said.last_at_ms,
        per_s=said.per_s,
        wait=_times_view(said.wait),
        delivery=_times_view(said.delivery),
        waits=[WaitPartView(*one) for one in said.waits],
        unread=said.unread,
    )


def _times_view(times: object) -> TimesView | None:
    return msgspec.convert(times, TimesView | None, from_attributes=True)


def _rows(story: Story) -> list[ReceiptView]:
    return [_row(one) for one in story.rows]


def _row(row: ReceiptRow) -> ReceiptView:
    shown = row._asdict()
    del shown["recipient_hash"]
    return ReceiptView(push=row.push_id, **shown)


def push_parts(push: str) -> tuple[str, int]:
    """Return the task and the seq in `TASK-SEQ`."""
    word, dash, seq = push.rpartition("-")
    if not (word and dash and seq.isdecimal() and len(seq) <= len(str(MAX_SEQ))):
        raise BadInput(
            f"{push[:60]!r} is not a push: give its task and its number, like sale-17; to search "
            "by recipient: pushlane results TASK --recipient WHO"
        )
    return word, int(seq)


def refuse_none(task: Task, seq: int) -> None:
    """Raise NotFound for a seq that no push of the task can have."""
    if not 0 < seq <= (task.highest_seq or MAX_SEQ):
        has = "is open for more" if task.total is None else f"has {task.total:,} pushes"
        raise NotFound(f"task {task.id} {has}: there is no push {seq}")


async def revealed(at: Session, task: Task, seq: int) -> MessageView | None:
    """Return what a push holds, if a lane still has it; who is shown it is in the audit."""
    content = await _content(at, task, seq)
    if content is None:
        return None
    at.revealed(f"{task.id}-{seq}", task.app)
    return message_view(content)


async def _content(at: Session, task: Task, seq: int) -> Push | None:
    """Return the push as it was published, or as it died, if a lane still has it."""
    from pushlane.producers.dead import DeadLetters, Selection
    from pushlane.producers.replay import retained_pushes

    async for push in retained_pushes(at.backend, task):
        if push.seq == seq:
            return push
    named = Selection(pushes=frozenset([f"{task.id}-{seq}"]))
    dead = await DeadLetters(at.backend).find(named)
    return decode(dead.letters[-1].dead.body) if dead.letters else None


def push_view(
    kind: type[SomePush],
    task: Task | None,
    push: tuple[str, int],
    story: Story,
    has_ended: bool,
    **more: Any,
) -> SomePush:
    """Return one push as its receipts tell it; `task` is None if the registry has it no more."""
    task_id, seq = push
    end = next((row for row in story.rows if row.outcome in ENDS), None)
    sent = [row for row in story.rows if row.dispatched_at_ms or row.waits]
    last = max(sent, key=lambda row: (row.attempt, row.responded_at_ms), default=None)
    return kind(
        push=f"{task_id}-{seq}",
        task_id=task_id,
        name=task.name if task else "",
        task_state=task.state.value if task else "",
        seq=seq,
        has_ended=has_ended or end is not None,
        outcome=end.outcome if end else None,
        reason=end.reason if end else None,
        receipts=_rows(story),
        waits=last.waits if last else None,
        is_cut=story.is_cut,
        unread=story.unread,
        notes=story.notes,
        **more,
    )


def message_view(push: Push) -> MessageView:
    """Return what a push holds, as it is shown to who has asked for just that."""
    return MessageView(**{name: getattr(push, name) for name in MessageView.__struct_fields__})
