"""Commands on dead pushes: list them, look at one, retry them in a new task, purge them.

Who a push was for and what it said is shown to nobody who has not asked for just that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import Flags, Group, JsonFlag, YesFlag, argument, on_backend, option, switch
from pushlane.cli.parsing import complete_task
from pushlane.cli.push import push_fields, texts_of
from pushlane.cli.render import (
    Column,
    age_text,
    picked,
    print_fields,
    print_json,
    print_table,
    time_text,
)
from pushlane.core.errors import BadInput, MalformedPush, UnknownFormat, UserError
from pushlane.core.push import DeadPush, decode
from pushlane.core.task import now_ms
from pushlane.model.times import parse_age
from pushlane.producers.dead import (
    NO_TASK,
    DeadLetters,
    DeadRetry,
    FoundDead,
    Retried,
    Selection,
    chosen,
    push_id,
    task_of_push,
)
from pushlane.settings import Settings

_LISTED = 100
_COLUMNS: tuple[Column[DeadPush], ...] = (
    Column("PUSH", push_id),
    Column("TASK", lambda dead: dead.task_id or NO_TASK, spare=4),
    Column("SINK", lambda dead: dead.sink or "-", spare=4),
    Column("ATTEMPT", lambda dead: str(dead.attempt), number=True),
    Column("DIED", lambda dead: age_text(dead.died_at_ms, now_ms()), number=True),
    Column("REASON", lambda dead: dead.reason, elastic=True),
)

TaskOption = Annotated[
    str,
    option(
        "TASK",
        "Only of this task; `-` for messages that are no push.",
        autocompletion=complete_task,
    ),
]
LimitOption = Annotated[int, option("N", "At most so many; 0 for all.", min=0)]
AllOption = Annotated[bool, switch("--all", "All there are, if nothing else is said.")]


@dataclass(frozen=True, kw_only=True)
class _Filter:
    """The options that choose dead pushes, as they are written; ages become times at the start."""

    task: TaskOption = ""
    reason: Annotated[str, option("TEXT", "Only if the reason holds this.")] = ""
    older_than: Annotated[str, option("AGE", "Only if dead for longer: 90s, 2h.")] = ""
    newer_than: Annotated[str, option("AGE", "Only if dead for less: 30m, 1d.")] = ""

    @property
    def is_given(self) -> bool:
        return bool(self.task or self.reason or self.older_than or self.newer_than)

    def _refuse_empty(self) -> None:
        if not (self.older_than and self.newer_than):
            return
        if parse_age(self.older_than) >= parse_age(self.newer_than):
            raise BadInput(
                f"nothing is dead for longer than {self.older_than} and for less than "
                f"{self.newer_than}; give --newer-than the longer age, or leave one out"
            )

    async def selection(
        self, backend: Backend, limit: int, pushes: Sequence[str] = ()
    ) -> Selection:
        """Return the selection of dead pushes. Raises UnknownTask or BadInput."""
        self._refuse_empty()
        return await chosen(
            backend,
            task=self.task,
            pushes=pushes,
            reason=self.reason,
            older_than_ms=parse_age(self.older_than) if self.older_than else 0,
            newer_than_ms=parse_age(self.newer_than) if self.newer_than else 0,
            limit=limit,
        )


@dataclass(frozen=True, kw_only=True)
class _Choice(_Filter):
    """The options that say which dead pushes something is done to."""

    pushes: Annotated[list[str] | None, argument("[TASK-SEQ]...", "Just these.")] = None
    limit: LimitOption = 0
    take_all: AllOption = False

    def refuse_unbounded(self, verb: str) -> None:
        is_chosen = self.is_given or bool(self.pushes)
        if not is_chosen and not self.take_all:
            raise BadInput(
                f"say which dead pushes to {verb}: TASK-SEQ, --task, --reason, --older-than or "
                "--newer-than; or --all"
            )
        if is_chosen and self.take_all:
            raise BadInput("--all and a choice of pushes exclude each other; give one of them")

    async def chosen(self, backend: Backend) -> Selection:
        """Return the selection of dead pushes. Raises UnknownTask or BadInput."""
        return await self.selection(backend, self.limit, self.pushes or ())


def list_(
    flags: Flags, wanted: _Filter, limit: LimitOption = _LISTED, wants_json: JsonFlag = False
) -> None:
    """List dead pushes, lane by lane, oldest first, without what they hold."""
    most = limit + 1 if limit else 0
    settings = _settings(flags)
    found = _find(settings, lambda backend: wanted.selection(backend, most))
    dead = [letter.dead for letter in found.letters]
    shown = dead[:limit] if limit else dead
    if wants_json:
        print_json([_as_json(one) for one in shown])
    elif shown:
        print_table(_COLUMNS, shown)
    if not dead:
        note(f"{'no dead pushes fit' if wanted.is_given else 'none is dead'} {settings.place}")
    if len(dead) > len(shown):
        note(f"there are more than {limit}; see them with --limit, or choose with --task, --reason")
    _tell_cut(found)


def show(
    flags: Flags,
    push: Annotated[str, argument("TASK-SEQ", "Its id.")],
    reveal: Annotated[bool, switch("--reveal", "Show recipient and content too.")] = False,
    wants_json: JsonFlag = False,
) -> None:
    """Show one dead push: why it died, and on request what it holds."""
    task_of_push(push)
    selection = Selection(pushes=frozenset([push]))
    found = on_backend(_settings(flags), lambda backend: DeadLetters(backend).find(selection))
    if not found.letters:
        _tell_cut(found)
        raise UserError(
            f"there is no dead push {push}: it has not died, or was retried or purged; "
            "`pushlane dead list` shows what there is"
        )
    dead = found.letters[-1].dead
    if wants_json:
        shown = {**_as_json(dead), "bytes": len(dead.body)}
        print_json({**shown, "message": _message(dead)} if reveal else shown)
    else:
        print_fields(_as_fields(dead, reveal))


def retry(flags: Flags, wanted: _Choice, wants_json: JsonFlag = False) -> None:
    """Send dead pushes again, in a new task for each of their tasks; print the new tasks' ids."""
    wanted.refuse_unbounded("retry")
    settings = _settings(flags)

    async def work(backend: Backend) -> list[Retried]:
        selection = await wanted.chosen(backend)
        return await DeadRetry(backend, settings, DeadLetters(backend)).run(selection)

    retried = on_backend(settings, work)
    if wants_json:
        print_json([_retried_json(one) for one in retried])
    for one in retried:
        if one.problem:
            note(f"{_count(one.count)} of task {one.task_id} cannot be retried: {one.problem}")
        elif not wants_json:
            typer.echo(one.retried_as)
            note(f"{_count(one.count)} of task {one.task_id}: sent again as task {one.retried_as}")
    if not retried:
        raise UserError(_nothing(wanted, "nothing is retried"))
    if not any(one.retried_as for one in retried):
        raise UserError("nothing is retried")
    _tell_missing(wanted, sum(one.count for one in retried))


def purge(
    flags: Flags,
    wanted: _Choice,
    dry_run: Annotated[bool, switch("--dry-run", "Only say how many.")] = False,
    yes: YesFlag = False,
    wants_json: JsonFlag = False,
) -> None:
    """Delete dead pushes for good."""
    wanted.refuse_unbounded("purge")
    settings = _settings(flags)
    if dry_run or not yes:
        found = _find(settings, wanted.chosen)
        count = _count(len(found.letters)) + (" or more" if found.cut else "")
        if dry_run:
            if wants_json:
                print_json({"would_purge": len(found.letters), "is_cut": bool(found.cut)})
            note(f"{count} would be purged")
            return
        if not found.letters:
            _purged(wanted, 0, wants_json)
            return
        confirm(f"purging {count}", f"Purge {count} for good?", "nothing is purged")

    async def work(backend: Backend) -> int:
        return await DeadLetters(backend).purge(await wanted.chosen(backend))

    _purged(wanted, on_backend(settings, work), wants_json)


def _settings(flags: Flags) -> Settings:
    """Return settings that read many messages at a time, since a look at a lane reads all of it."""
    return flags.also(prefetch=2_000).settings()


def _find(settings: Settings, choose: Callable[[Backend], Awaitable[Selection]]) -> FoundDead:
    async def find(backend: Backend) -> FoundDead:
        return await DeadLetters(backend).find(await choose(backend))

    return on_backend(settings, find)


def _purged(wanted: _Choice, purged: int, wants_json: bool) -> None:
    """Say how many were purged. Raises UserError when none was of those that were named."""
    if wants_json:
        print_json({"purged": purged})
    if purged:
        note(f"{_count(purged)} purged")
        _tell_missing(wanted, purged)
        return
    if wanted.pushes:
        raise UserError(_nothing(wanted, "nothing is purged"))
    note(_nothing(wanted, "nothing is purged"))


def _nothing(wanted: _Choice, what: str) -> str:
    if not wanted.pushes:
        return f"{what}: no dead push fits (any more); `pushlane dead list` shows what there is"
    which = ", ".join(wanted.pushes)
    return (
        f"{what}: there is no dead push {which} (any more); it was retried or purged, or has not "
        "died. See `pushlane dead list`"
    )


def _tell_missing(wanted: _Choice, found: int) -> None:
    missing = len(set(wanted.pushes or ())) - found
    if missing > 0:
        note(f"{missing} of the pushes you named are not dead, or were retried or purged before")


def _tell_cut(found: FoundDead) -> None:
    if found.cut:
        note(
            f"lane {', '.join(found.cut)} holds more than can be looked through at once; retry or "
            "purge some of what is there, then look again"
        )


def _count(number: int) -> str:
    return "1 dead push" if number == 1 else f"{number:,} dead pushes"


def _retried_json(one: Retried) -> dict[str, Any]:
    fates = {"retried_as": one.retried_as or None, "problem": one.problem or None}
    return {"task": one.task_id, "pushes": one.count, **fates}


def _as_json(dead: DeadPush) -> dict[str, Any]:
    return {
        "push": push_id(dead),
        "task": dead.task_id or NO_TASK,
        "seq": dead.seq,
        "sink": dead.sink or None,
        **picked(dead, "attempt", "reason", "died_at_ms"),
    }


def _as_fields(dead: DeadPush, reveal: bool) -> list[tuple[str, str]]:
    """Return all of the push for people, as names and values."""
    fields = [
        ("push", push_id(dead)),
        ("task", dead.task_id or NO_TASK),
        ("sink", dead.sink or "-"),
        ("attempt", str(dead.attempt)),
        ("reason", dead.reason),
        ("died", time_text(dead.died_at_ms)),
        ("size", f"{len(dead.body):,} bytes"),
    ]
    if not reveal:
        return [*fields, ("message", "hidden; --reveal shows it")]
    message = _message(dead)
    return [*fields, *texts_of(message)]


def _message(dead: DeadPush) -> dict[str, Any]:
    """Return what the push holds, or the bytes of a message that is no push."""
    try:
        push = decode(dead.body)
    except (MalformedPush, UnknownFormat):
        return {"bytes_hex": dead.body.hex()}
    return push_fields(push)


dead = Group("Look at dead pushes, retry or purge them.", (list_, show, retry, purge))
