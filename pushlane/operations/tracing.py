"""Follows pushes: the story of one, or of all of a trace or to a recipient, step by step.

Recipients are masked, but in a push that is revealed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.task import Task
from pushlane.operations.looks import (
    MessageView,
    PushView,
    push_parts,
    push_view,
    recipient_hash,
    refuse_none,
    refuse_unless_operator,
    revealed,
    wanted_push,
)
from pushlane.operations.operation import Of, Operation, Role, read_by
from pushlane.operations.reports import Past
from pushlane.operations.session import Session
from pushlane.operations.steps import StepView, steps_of
from pushlane.operations.stories import read_story
from pushlane.util.errors import NotFound, UnknownTask
from pushlane.util.trace_context import trace_key

if TYPE_CHECKING:
    from pushlane.diagnosis.results import ReceiptRow
    from pushlane.diagnosis.story import PushKey, Story, Wanted

MOST_PUSHES = 20
OF_PUSH, OF_TRACE, OF_RECIPIENT = "push", "trace", "recipient"
_UNTRIED = "pushes that wait for their first attempt have no receipt yet, and are not among these"


class TracedPush(PushView, frozen=True, kw_only=True):
    """The same with its story in `steps`."""

    steps: Sequence[StepView]


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """The stories of the newest 20 pushes that were asked for, the newest first.

    `of` says what the word was: a `push`, a `trace` or a `recipient`. `more` counts the other
    pushes; with `is_cut` there are still more. `source` says where their receipts were read,
    `notes` what may be missing; `unread` counts bodies of the log that cannot be read.
    """

    of: str
    pushes: Sequence[TracedPush]
    more: int
    is_cut: bool
    unread: int
    source: str
    notes: Sequence[str]


def _usable(what: str, given: Any) -> str:
    from pushlane.producers.suppress import usable_value

    return usable_value(given)


class TracePushes(Operation[TraceView], frozen=True, kw_only=True):
    """Tell the story of a push, or of all of a trace or to a recipient: each wait and attempt.

    A word that is a push of a task is that; else it is looked for as a trace id and a recipient,
    in receipts of all times unless `since_ms` says otherwise. Whom a push was for and what it says
    is for operators, who ask for it: that is in the audit.
    """

    method, path, role, of = "POST", "/receipts/trace", Role.VIEWER, Of.APPS
    commands = ("trace",)

    what: Annotated[
        str,
        read_by(_usable),
        Meta(description="A push (TASK-SEQ), a trace id, or whom pushes were for."),
    ]
    reveal: Annotated[
        bool, Meta(description="Of one push recipient and content too, if its lane has them.")
    ] = False

    since_ms: (
        Annotated[Past, Meta(description="Look through receipts from then on (Unix ms): all.")]
        | None
    ) = None

    async def run(self, at: Session) -> TraceView:
        if self.reveal:
            refuse_unless_operator(at.caller, "to reveal a push")
        task, key = await self._named(at)
        wanted = await self._wanted(at, task, key)
        story = await read_story(at, wanted)
        if task is None and not story.rows:
            await self._refuse_task(at, key)
        of = self._of(task, key, story)
        if self.reveal and of != OF_PUSH:
            raise BadInput("only one push at a time can be revealed: give its id, TASK-SEQ")
        found = _by_push(story)
        if task is not None and key is not None:
            found.setdefault(key, [])
        shown = sorted(found, key=lambda one: -_last_ms(found[one]))[:MOST_PUSHES]
        return TraceView(
            of=of,
            pushes=await self._told(at, shown, found),
            more=len(found) - len(shown),
            is_cut=story.is_cut,
            unread=story.unread,
            source=story.source,
            notes=[*story.notes, *([] if of == OF_PUSH else [_UNTRIED])],
        )

    async def _named(self, at: Session) -> tuple[Task | None, PushKey | None]:
        """Return the push that the word names, with its task if the registry has that."""
        try:
            word, seq = push_parts(self.what)
        except BadInput:
            return None, None
        try:
            task = await at.task(word)
            refuse_none(task, seq)
        except UnknownTask:
            return None, (word, seq)
        return task, (task.id, seq)

    async def _wanted(self, at: Session, task: Task | None, key: PushKey | None) -> Wanted:
        from pushlane.diagnosis.story import Wanted

        if task is not None and key is not None:
            return wanted_push(task, key[1])
        return Wanted(
            task_id=key[0] if key else "",
            seq=key[1] if key else None,
            recipient_hash=await recipient_hash(at, self.what),
            trace_id=self.what,
            apps=at.apps,
            either=True,
            since_ms=self.since_ms or 0,
        )

    async def _refuse_task(self, at: Session, key: PushKey | None) -> None:
        """Raise BadInput if the word names a task instead of one of its pushes.

        Raises UnknownTask if several tasks have that name, or the one of such a push.
        """
        for word in (self.what, *(key[:1] if key else ())):
            try:
                task = await at.task(word)
            except UnknownTask as error:
                if error.several:
                    raise
                continue
            raise BadInput(
                f"{self.what!r} is a task; trace one of its pushes, such as {task.id}-1, or see "
                f"`pushlane results {task.id}`"
            )

    def _of(self, task: Task | None, key: PushKey | None, story: Story) -> str:
        """Return what the word was. Raises NotFound if nothing is known of it."""
        if task is not None or any((row.task_id, row.seq) == key for row in story.rows):
            return OF_PUSH
        if not story.rows:
            raise NotFound(
                f"no task has that push (TASK-SEQ), and no receipt in {story.source} has that "
                "trace id or recipient: check how it is written; nothing of it may have been "
                "tried yet, or its receipts are off, dropped, hashed with another "
                f"receipts_key{'' if self.since_ms is None else ', or older'}"
            )
        traces = {trace_key(row.trace_id) for row in story.rows}
        return OF_TRACE if trace_key(self.what) in traces else OF_RECIPIENT

    async def _told(
        self, at: Session, shown: Sequence[PushKey], found: dict[PushKey, list[ReceiptRow]]
    ) -> list[TracedPush]:
        tasks = {task_id: await _task(at, task_id) for task_id in {one[0] for one in shown}}
        ended: set[PushKey] = set()
        for task_id, task in tasks.items():
            seqs = [seq for of, seq in shown if of == task_id]
            if task is not None:
                flags = await at.backend.registry.finished(task_id, seqs)
                ended |= {(task_id, seq) for seq, flag in zip(seqs, flags, strict=True) if flag}
        return [await self._push(at, tasks[key[0]], key, found[key], key in ended) for key in shown]

    async def _push(
        self,
        at: Session,
        task: Task | None,
        key: PushKey,
        rows: list[ReceiptRow],
        has_ended: bool,
    ) -> TracedPush:
        from pushlane.diagnosis.story import Story

        message: MessageView | None = None
        if self.reveal and task is not None:
            message = await revealed(at, task, key[1])
        story = Story(rows=rows)
        made = push_view(TracedPush, task, key, story, has_ended, message=message, steps=())
        return msgspec.structs.replace(made, steps=steps_of(made.receipts))


def _by_push(story: Story) -> dict[PushKey, list[ReceiptRow]]:
    found: dict[PushKey, list[ReceiptRow]] = defaultdict(list)
    for row in story.rows:
        found[row.task_id, row.seq].append(row)
    return dict(found)


def _last_ms(rows: Sequence[ReceiptRow]) -> int:
    return max((row.responded_at_ms for row in rows), default=0)


async def _task(at: Session, task_id: str) -> Task | None:
    try:
        return await at.task(task_id)
    except UnknownTask:
        return None
