"""Commands on dead pushes: list them, look at one, retry them in a new task, purge them.

Who a push was for and what it said is shown to nobody who has not asked for just that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import Flags, Group, JsonFlag, YesFlag, argument, option, switch
from pushlane.cli.parsing import complete_task
from pushlane.cli.preview import CountFlag, show_preview
from pushlane.cli.push import push_fields, texts_of
from pushlane.cli.render import (
    Column,
    age_text,
    print_fields,
    print_json,
    print_table,
    time_text,
)
from pushlane.core.errors import BadInput, UserError
from pushlane.core.task import now_ms
from pushlane.model.times import parse_age
from pushlane.operations.dead import CountDead, DeadLetter, GetDead, ListDead, PurgeDead, RetryDead
from pushlane.operations.views import plain
from pushlane.settings import Settings

_LISTED = 100
_COLUMNS: tuple[Column[DeadLetter], ...] = (
    Column("PUSH", lambda dead: dead.push),
    Column("TASK", lambda dead: dead.task, spare=4),
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

    def fields(self) -> dict[str, Any]:
        """Return the fields of an operation that chooses so. Raises BadInput."""
        self._refuse_empty()
        return {
            "task": self.task,
            "reason": self.reason,
            "older_than_s": parse_age(self.older_than) / 1000 if self.older_than else 0,
            "newer_than_s": parse_age(self.newer_than) / 1000 if self.newer_than else 0,
        }


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

    def fields(self) -> dict[str, Any]:
        pushes = tuple(self.pushes or ())
        return {
            **super().fields(),
            "pushes": pushes,
            "limit": self.limit,
            "all_there_are": self.take_all,
        }


def list_(
    flags: Flags, wanted: _Filter, limit: LimitOption = _LISTED, wants_json: JsonFlag = False
) -> None:
    """List dead pushes, lane by lane, as they came there, without what they hold."""
    settings = _settings(flags)
    found = done(settings, ListDead(**wanted.fields(), limit=limit))
    if wants_json:
        print_json([plain(one) for one in found.dead])
    elif found.dead:
        print_table(_COLUMNS, found.dead)
    if not found.dead:
        note(f"{'no dead pushes fit' if wanted.is_given else 'none is dead'} {settings.place}")
    if found.is_cut:
        note(f"there are more than {limit}; see them with --limit, or choose with --task, --reason")


def show(
    flags: Flags,
    push: Annotated[str, argument("TASK-SEQ", "Its id.")],
    reveal: Annotated[bool, switch("--reveal", "Show recipient and content too.")] = False,
    wants_json: JsonFlag = False,
) -> None:
    """Show one dead push: why it died, and on request what it holds."""
    found = done(_settings(flags), GetDead(push=push, reveal=reveal))
    if wants_json:
        print_json(plain(found))
    else:
        print_fields(_as_fields(found, reveal))


def retry(
    flags: Flags, wanted: _Choice, preview: CountFlag = False, wants_json: JsonFlag = False
) -> None:
    """Send dead pushes again, in a new task for each of their tasks; print the new tasks' ids."""
    wanted.refuse_unbounded("retry")
    settings, operation = _settings(flags), RetryDead(**wanted.fields())
    if show_preview(settings, operation, preview=preview, as_json=wants_json):
        return
    retried = done(settings, operation)
    if wants_json:
        print_json([plain(one) for one in retried])
    for one in retried:
        if one.problem:
            note(f"{_count(one.pushes)} of task {one.task} cannot be retried: {one.problem}")
        elif not wants_json:
            typer.echo(one.retried_as)
            note(f"{_count(one.pushes)} of task {one.task}: sent again as task {one.retried_as}")
    if not retried:
        raise UserError(_nothing(wanted, "nothing is retried"))
    if not any(one.retried_as for one in retried):
        raise UserError("nothing is retried")
    _tell_missing(wanted, sum(one.pushes for one in retried))


def purge(
    flags: Flags,
    wanted: _Choice,
    dry_run: Annotated[bool, switch("--dry-run", "Only say how many.")] = False,
    preview: CountFlag = False,
    yes: YesFlag = False,
    wants_json: JsonFlag = False,
) -> None:
    """Delete dead pushes for good."""
    wanted.refuse_unbounded("purge")
    settings, operation = _settings(flags), PurgeDead(**wanted.fields())
    if show_preview(settings, operation, preview=preview, as_json=wants_json):
        return
    if dry_run or not yes:
        found = done(settings, CountDead(**wanted.fields()))
        count = _count(found.purged) + (" or more" if found.is_cut else "")
        if dry_run:
            if wants_json:
                print_json({"would_purge": found.purged, "is_cut": found.is_cut})
            note(f"{count} would be purged")
            return
        if not found.purged:
            _purged(wanted, 0, wants_json)
            return
        confirm(f"purging {count}", f"Purge {count} for good?", "nothing is purged")
    _purged(wanted, done(settings, operation).purged, wants_json)


def _settings(flags: Flags) -> Settings:
    """Return settings that read many messages at a time, since a look at a lane reads all of it."""
    return flags.also(prefetch=2_000).settings()


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


def _count(number: int) -> str:
    return "1 dead push" if number == 1 else f"{number:,} dead pushes"


def _as_fields(dead: DeadLetter, reveal: bool) -> list[tuple[str, str]]:
    """Return all of the push for people, as names and values."""
    fields = [
        ("push", dead.push),
        ("task", dead.task),
        ("sink", dead.sink or "-"),
        ("attempt", str(dead.attempt)),
        ("reason", dead.reason),
        ("died", time_text(dead.died_at_ms)),
        ("size", f"{dead.bytes or 0:,} bytes"),
    ]
    if not reveal:
        return [*fields, ("message", "hidden; --reveal shows it")]
    return [*fields, *texts_of(_message(dead))]


def _message(dead: DeadLetter) -> dict[str, Any]:
    """Return what the push holds, or the bytes of a message that is no push."""
    if dead.message is None:
        return {"bytes_hex": dead.bytes_hex}
    return push_fields(dead.message)


dead = Group("Look at dead pushes, retry or purge them.", (list_, show, retry, purge))
