"""`push show` says all that is known of one push, for who asks whether somebody got it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, on_backend, switch
from pushlane.cli.main import give_way
from pushlane.cli.render import Column, picked, print_fields, print_json, print_table, time_text
from pushlane.core.errors import UserError
from pushlane.core.push import Push, decode
from pushlane.core.task import Task
from pushlane.diagnosis.results import ReceiptRow
from pushlane.diagnosis.story import MOST_ROWS, Story, Wanted, story_of
from pushlane.model.counted import ENDS

_COLUMNS: tuple[Column[ReceiptRow], ...] = (
    Column("AT", lambda row: time_text(row.responded_at_ms)),
    Column("PUSH", lambda row: row.push_id),
    Column("OUTCOME", lambda row: row.outcome),
    Column("TRY", lambda row: str(row.attempt), number=True, spare=1),
    Column("SINK", lambda row: row.sink or "-", spare=3),
    Column("MS", lambda row: _took_text(row), number=True, spare=2),
    Column("REASON", lambda row: row.reason or "-", elastic=True),
)
_OF_ONE = tuple(column for column in _COLUMNS if column.heading != "PUSH")


def show(
    flags: Flags,
    push: Annotated[str, argument("TASK-SEQ", "Its id; the task by id, key or name.")],
    reveal: Annotated[
        bool, switch("--reveal", "Show recipient and content too, if its lane still has them.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what became of one push: each attempt, its end, and what the device said."""
    word, seq = _parts(push)
    give_way()

    async def look(backend: Backend) -> _Found:
        task = await backend.registry.get(word)
        if not 0 < seq <= (task.total or seq):
            raise UserError(f"task {task.id} has {task.total:,} pushes: there is no push {seq}")
        story = await story_of(backend.receipts, Wanted(task=task, seq=seq))
        [has_ended] = await backend.registry.finished(task.id, [seq])
        content = await _content(backend, task, seq) if reveal else None
        return _Found(task, seq, story, has_ended, content)

    found = on_backend(flags.settings(), look)
    if as_json:
        print_json(found.as_json())
    else:
        print_fields(found.as_fields())
        if found.story.rows:
            typer.echo("")
            print_table(_OF_ONE, found.story.rows)
    if reveal and found.content is None:
        note("its recipient and content are not kept: its lane keeps nothing, or is gone")
    tell_missing(found.story)


class _Found(msgspec.Struct):
    """A push, what became of it, and what it holds, if that was asked for and is there."""

    task: Task
    seq: int
    story: Story
    has_ended: bool
    content: Push | None

    @property
    def end(self) -> ReceiptRow | None:
        return next((row for row in self.story.rows if row.outcome in ENDS), None)

    @property
    def outcome(self) -> str:
        """How it stands, for people."""
        if self.end is not None:
            why = f": {self.end.reason}" if self.end.reason else ""
            return f"{self.end.outcome}{why}"
        if self.has_ended:
            return "it has ended; how is not known, as there is no receipt of that"
        if self.task.state.is_terminal:
            return f"it was never taken: its task is {self.task.state}"
        return f"not ended yet; what its task waits for: pushlane why {self.task.id}"

    def as_json(self) -> dict[str, Any]:
        end = self.end
        shown = {
            "push": f"{self.task.id}-{self.seq}",
            "task_id": self.task.id,
            "name": self.task.name,
            "seq": self.seq,
            "has_ended": self.has_ended or end is not None,
            "outcome": end.outcome if end else None,
            "reason": end.reason if end else None,
            "receipts": [row_json(row) for row in self.story.rows],
        }
        return shown | ({"message": push_fields(self.content)} if self.content else {})

    def as_fields(self) -> Iterator[tuple[str, str]]:
        yield "push", f"{self.task.id}-{self.seq}"
        yield "task", f"{self.task.id} {self.task.name} ({self.task.state})"
        yield "outcome", self.outcome
        rows = self.story.rows
        if rows and not self.content:
            yield "recipient", next(filter(None, (row.recipient for row in rows)), "-")
        if trace_id := next(filter(None, (row.trace_id for row in rows)), ""):
            yield "trace id", trace_id
        if self.content:
            yield from texts_of(push_fields(self.content))


def _parts(push: str) -> tuple[str, int]:
    """Return the task and the seq in `TASK-SEQ`."""
    word, dash, seq = push.rpartition("-")
    if not (word and dash and seq.isdecimal()):
        raise UserError(
            f"{push!r} is no push: give its task and its number, like sale-17; whom it was for: "
            "pushlane results TASK --recipient WHO"
        )
    return word, int(seq)


async def _content(backend: Backend, task: Task, seq: int) -> Push | None:
    """Return the push as it was published, or as it died, if a lane still has it."""
    from pushlane.producers.dead import DeadLetters, Selection  # which load how tasks are made
    from pushlane.producers.replay import retained_pushes

    async for push in retained_pushes(backend, task):
        if push.seq == seq:
            return push
    dead = await DeadLetters(backend).find(Selection(pushes=frozenset([f"{task.id}-{seq}"])))
    return decode(dead.letters[-1].dead.body) if dead.letters else None


def print_story(story: Story, *, as_json: bool) -> None:
    """Print the receipts of several pushes."""
    if as_json:
        print_json([row_json(row) for row in story.rows])
    else:
        print_table(_COLUMNS, story.rows)
    tell_missing(story)


def tell_missing(story: Story) -> None:
    """Say what a story leaves out."""
    if story.is_cut:
        note(f"there are more than these {MOST_ROWS:,}: name a TASK")
    if story.unread:
        note(f"{story.unread:,} bodies of the log were left out: this version cannot read them")


def row_json(row: ReceiptRow) -> dict[str, Any]:
    """Return a receipt for programs."""
    shown = row._asdict()
    del shown["recipient_hash"]
    return {"push": row.push_id, **shown}


def push_fields(push: Push) -> dict[str, Any]:
    """Return what a push holds."""
    by_sink = picked(push, "addresses", "payloads")
    return picked(push, "recipient", "title", "body", "data") | {
        name: value for name, value in by_sink.items() if value is not None
    }


def texts_of(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that are set, as texts: what is none, as JSON."""
    for name, value in fields.items():
        if value is not None:
            yield name, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _took_text(row: ReceiptRow) -> str:
    if not row.dispatched_at_ms:
        return "-"
    return f"{row.responded_at_ms - row.dispatched_at_ms:,}"


push = Group("Look at one push.", (show,))
