"""Operations on rules, which send to an audience by a schedule while `pushlane rules serve` runs.

The pipeline keeps them, and is loaded by who needs it: a client needs none of its packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.task import now_ms
from pushlane.model.times import LAST_DATE_MS
from pushlane.operations.operation import ETag, Of, Operation, Role, read_by
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session
from pushlane.operations.views import Removed
from pushlane.util.conversion import seconds
from pushlane.util.errors import NotAllowed
from pushlane.util.extras import needs_extra

if TYPE_CHECKING:
    from pushlane.pipeline.rules.history import Run
    from pushlane.pipeline.rules.rule import Rule
    from pushlane.pipeline.rules.rule_store import RuleRecord, RuleStore

_LONGEST_CATCH_UP_S = 31 * 86_400
_MOST_PUSHES = 10**12
_SHOWN_NEXT = 3
_BESIDE = ("cli", "python")
"""Faces of who holds the keys of the backend."""


class CatchUp(StrEnum):
    """The missed runs that are made up for: the latest, all, or none."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class RuleRunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a rule, named by the time when it was due or asked for. Times are Unix ms.

    `key` is that of its task. A run is due, running, waiting until `retry_at_ms`, and then done,
    failed, refused or skipped, for a `reason`. `most` is what the budgets left it, `total` what it
    put on a lane, `times` how many due times one that was skipped stands for.
    """

    rule: str
    key: str
    at: str
    at_ms: int
    state: str
    asked: bool
    reason: str
    revision: int
    most: int | None
    begun: int
    failures: int
    begun_at_ms: int | None
    retry_at_ms: int | None
    ended_at_ms: int | None
    task_id: str | None
    total: int | None
    times: int


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, without passwords, and how it stands. Times are Unix milliseconds.

    `state` is what is under way, or how the last run ended; `next_at_ms` when it is due next, and
    `then_at_ms` the two times after that. `spent` counts the pushes of its last days, `spent_today`
    those of today with what runs under way may still send. `served` tells whether a process makes
    the runs of rules now.
    """

    name: str
    app: str
    state: str
    audience: str
    format: str
    options: Mapping[str, str]
    where: str
    exclude: tuple[str, ...]
    task: Mapping[str, Any]
    cron: str
    zone: str
    budget_run: int | None
    budget_day: int | None
    catch_up: CatchUp
    catch_up_s: float
    paused: bool
    silent: bool | None
    literal_braces: bool | None
    since_ms: int
    revision: int
    next_at_ms: int | None
    then_at_ms: tuple[int, ...]
    open_runs: int
    spent: Mapping[str, int]
    spent_today: int
    last_run: RuleRunView | None
    served: bool


def _catch_up_s(what: str, given: object) -> float:
    return seconds(what, given, 0, _LONGEST_CATCH_UP_S)


RuleName = Annotated[str, Meta(description="Its name.")]
Pushes = Annotated[int, Meta(ge=1, le=_MOST_PUSHES)]


class PutRule(Operation[RuleView], frozen=True, kw_only=True):
    """Save a rule: an audience, a task, and when it is sent. Paths are those of who runs rules.

    Its SQL and its reader can do whatever the user may that `pushlane rules serve` runs as. So it
    is for who sees all apps, and over HTTP only where the server has the setting `rules_over_http`.
    """

    method, path, role, of = "PUT", "/rules/{name}", Role.ADMIN, Of.EVERYTHING
    commands = ("rules add",)
    changes = True
    etag = ETag.TAKEN

    name: Annotated[str, Meta(max_length=64, description="Its name, of all apps' rules.")]
    audience: Annotated[str, Meta(description="The recipients: a path or table that Spark reads.")]
    task: Annotated[
        Mapping[str, Any], Meta(description="Options of its tasks, as in a task spec (TOML).")
    ]
    cron: Annotated[str, Meta(max_length=200, description="When, like `0 9 * * MON`.")]
    zone: Annotated[str, Meta(description="Of its clock.")] = "UTC"
    format: Annotated[str, Meta(description="parquet, csv, json, jdbc, ...")] = ""
    options: Annotated[Mapping[str, str], Meta(description="For Spark's reader.")] = {}
    where: Annotated[str, Meta(description="A rule in SQL over the columns.")] = ""
    exclude: Annotated[
        tuple[str, ...], Meta(description="Leave out these recipients: PATH|TABLE[:COLUMN].")
    ] = ()
    budget_run: Annotated[Pushes, Meta(description="Most pushes of a run.")] | None = None
    budget_day: Annotated[Pushes, Meta(description="Most pushes of a day.")] | None = None
    catch_up: Annotated[CatchUp, Meta(description="Missed runs that are made up for.")] = (
        CatchUp.LATEST
    )
    catch_up_s: Annotated[
        float,
        read_by(_catch_up_s),
        Meta(ge=0, le=_LONGEST_CATCH_UP_S, description="How long ago they may have been missed."),
    ] = 86_400.0
    paused: Annotated[bool, Meta(description="Run it only by hand.")] = False
    replace: Annotated[bool, Meta(description="Change the rule of this name.")] = False

    async def run(self, at: Session) -> RuleView:
        self._refuse(at)
        with _pipeline():
            from pushlane.pipeline.rules.rule_file import build_rule
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "replace"}
        rule = build_rule(fields, at.settings, now_ms())
        store, before = _store(at), None
        if self.replace:
            before = await store.replace(rule, _unless_overtaken(at, self.name))
        else:
            _unless_overtaken(at, self.name)(None)
            await store.add(rule)
        found = await store.record(self.name)
        _note(at, self.name, before, found.rule)
        return await _shown(at, found)

    def _refuse(self, at: Session) -> None:
        """Raise NotAllowed where who asks may not run code here, BadInput for a path in the task.

        It would be read where this runs, not where the file is.
        """
        if at.caller.face not in _BESIDE and not at.settings.rules_over_http:
            raise NotAllowed(
                "this server does not save rules, as a rule can run code where it is served: "
                "save it beside the backend, or set rules_over_http for the server"
            )
        if isinstance(self.task.get("payload"), str):
            raise BadInput("the task's payload is a text; give the object itself, not its file")


class ListRules(Operation[list[RuleView]], frozen=True, kw_only=True):
    """List the rules, with when each runs next and how its last run ended."""

    method, path, role, of = "GET", "/rules", Role.VIEWER, Of.APPS
    commands = ("rules list",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[RuleView]:
        found = sorted(await _store(at).records(), key=lambda one: one.rule.name)
        is_served = await _is_served(at)
        return [_view(one, is_served) for one in page(at, self, found, lambda one: one.rule.name)]


class GetRule(Operation[RuleView], frozen=True, kw_only=True):
    """Show a rule, without passwords, and when it runs next."""

    method, path, role, of = "GET", "/rules/{name}", Role.VIEWER, Of.APP
    commands = ("rules show",)
    etag = ETag.SHOWN

    name: RuleName

    async def run(self, at: Session) -> RuleView:
        return await _shown(at, await _store(at).record(self.name))


class ListRuleRuns(Operation[list[RuleRunView]], frozen=True, kw_only=True):
    """Show what became of the runs of rules, the latest first. The last 100 of a rule are kept."""

    method, path, role, of = "GET", "/rule-runs", Role.VIEWER, Of.APPS
    commands = ("rules history",)

    name: Annotated[str, Meta(description="Of this rule; of all unless given.")] = ""
    limit: Annotated[int, Meta(ge=0, description="The latest so many; 0 for all.")] = 100
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[RuleRunView]:
        store = _store(at)
        records = [await store.record(self.name)] if self.name else await store.records()
        runs = [(one.rule.name, run) for one in records for run in one.history.runs]
        runs.sort(key=_place, reverse=True)
        return [run_view(*one) for one in page(at, self, runs, _place, is_descending=True)]


class PauseRule(Operation[RuleView], frozen=True, kw_only=True):
    """Run a rule no more, but by hand. A run under way goes on to its end."""

    method, path, role, of = "POST", "/rules/{name}/pause", Role.OPERATOR, Of.APP
    commands = ("rules pause",)
    changes = True
    etag = ETag.TAKEN

    name: RuleName

    async def run(self, at: Session) -> RuleView:
        return await _change(at, self.name, lambda rule: rule.held(True, now_ms()))


class ResumeRule(Operation[RuleView], frozen=True, kw_only=True):
    """Let a paused rule run again. What came due meanwhile is not made up for."""

    method, path, role, of = "POST", "/rules/{name}/resume", Role.OPERATOR, Of.APP
    commands = ("rules resume",)
    changes = True
    etag = ETag.TAKEN

    name: RuleName

    async def run(self, at: Session) -> RuleView:
        return await _change(at, self.name, lambda rule: rule.held(False, now_ms()))


class RunRule(Operation[RuleRunView], frozen=True, kw_only=True):
    """Ask for a run now, or once more for a time when it was due: `rules serve` makes it.

    A paused rule is run, too. A run that waits already, or is done, is not asked for twice.
    """

    method, path, role, of = "POST", "/rules/{name}/run", Role.OPERATOR, Of.APP
    commands = ("rules run",)
    changes = True

    name: RuleName
    at_ms: Annotated[
        int, Meta(ge=0, le=LAST_DATE_MS, description="Due then (Unix ms); 0 for a run of its own.")
    ] = 0

    async def run(self, at: Session) -> RuleRunView:
        store, now = _store(at), now_ms()
        from pushlane.pipeline.rules.rule_scheduler import request_again, request_now

        before = await store.record(self.name)
        if self.at_ms:
            at_ms = await request_again(store, self.name, self.at_ms, now)
        else:
            at_ms = await request_now(store, self.name, now, joins=True)
        run = (await store.history(self.name)).find(at_ms)
        if run is None:
            raise TaskConflict(f"rule {self.name!r} is being changed elsewhere; try again")
        shown = run_view(self.name, run)
        if run != before.history.find(at_ms):
            at.changed(f"rule/{self.name}", {}, {"run": shown.at}, before.rule.app)
        return shown


class WithdrawRuleRuns(Operation[RuleView], frozen=True, kw_only=True):
    """Take back a run that was asked for and has not begun, or all of them."""

    method, path, role, of = "POST", "/rules/{name}/withdraw", Role.OPERATOR, Of.APP
    commands = ("rules withdraw",)
    changes = True

    name: RuleName
    at_ms: Annotated[
        int, Meta(ge=0, le=LAST_DATE_MS, description="The run of then (Unix ms); 0 for all.")
    ] = 0

    async def run(self, at: Session) -> RuleView:
        store = _store(at)
        from pushlane.pipeline.rules.history import iso_utc, requests, withdraw_run, withdraw_runs

        rule, history = await store.record(self.name)
        asked = [iso_utc(run.at_ms) for run in requests(history) if self.at_ms in (0, run.at_ms)]
        if not asked:
            of_then = f" of {iso_utc(self.at_ms)}" if self.at_ms else ""
            raise BadInput(
                f"rule {self.name!r} has no waiting run{of_then} that somebody asked for"
            )
        edit = withdraw_run(self.at_ms) if self.at_ms else withdraw_runs
        await store.change_history(self.name, edit)
        at.changed(f"rule/{self.name}", {"run": ", ".join(asked)}, {}, rule.app)
        return await _shown(at, await store.record(self.name))


class RemoveRule(Operation[Removed], frozen=True, kw_only=True):
    """Take a rule away, with the history of its runs. Its tasks stay."""

    method, path, role, of = "DELETE", "/rules/{name}", Role.OPERATOR, Of.APP
    commands = ("rules remove",)
    changes = destroys = True

    name: RuleName

    async def run(self, at: Session) -> Removed:
        store = _store(at)
        rule = (await store.record(self.name)).rule
        await store.remove(self.name)
        at.changed(f"rule/{self.name}", _noted(rule), {}, rule.app)
        return Removed(self.name)


@contextmanager
def _pipeline() -> Iterator[None]:
    with needs_extra("pipeline", "an operation on rules"):
        yield


def _store(at: Session) -> RuleStore:
    """Return the rules of the caller's apps. Raises BadInput without the extra `pipeline`."""
    with _pipeline():
        from pushlane.pipeline.rules.rule_store import RuleStore
    return RuleStore(at.backend.documents, lambda rule: at.sees(rule.app))


async def _change(at: Session, name: str, edit: Callable[[Rule], Rule]) -> RuleView:
    store = _store(at)
    changed = await store.change(name, edit, _unless_overtaken(at, name))
    _note(at, name, *changed)
    return await _shown(at, await store.record(name))


def _unless_overtaken(at: Session, name: str) -> Callable[[Rule | None], None]:
    """Return what refuses a change of a rule that is not as the caller has seen it."""
    return lambda there: at.require_seen(f"rule/{name}", _set_of(there) if there else {})


def _set_of(rule: Rule) -> dict[str, Any]:
    """Return what is set of a rule: each change raises its revision."""
    return {**rule.shown(), "revision": rule.revision}


def _note(at: Session, name: str, before: Rule | None, after: Rule) -> None:
    at.changed(f"rule/{name}", _noted(before) if before else {}, _noted(after), after.app)


def _noted(rule: Rule) -> dict[str, Any]:
    """Return what the audit has of a rule: not its SQL, options and texts, which may name people.

    That these have changed is told by the revision.
    """
    names = ("revision", "paused", "cron", "zone", "budget_run", "budget_day", "catch_up")
    return {**{name: getattr(rule, name) for name in names}, "app": rule.app}


async def _shown(at: Session, found: RuleRecord) -> RuleView:
    at.show(f"rule/{found.rule.name}", _set_of(found.rule))
    return _view(found, await _is_served(at))


async def _is_served(at: Session) -> bool:
    """Return whether a process leads the rules, and makes their runs."""
    from pushlane.pipeline.rules.rule_store import LEASE

    return await at.backend.lease.is_held(LEASE)


def _place(one: tuple[str, Run]) -> str:
    """Return the place of a run among those of all rules: by its time, then by its rule."""
    name, run = one
    return f"{run.at_ms:020d}-{name}"


def run_view(rule: str, run: Run) -> RuleRunView:
    """Return a run as it is shown."""
    from pushlane.pipeline.rules.history import iso_utc, run_key

    names = ("at_ms", "asked", "reason", "revision", "most", "begun", "failures", "total", "times")
    maybe = ("begun_at_ms", "retry_at_ms", "ended_at_ms", "task_id")
    own: dict[str, Any] = {name: getattr(run, name) for name in names}
    own |= {name: getattr(run, name) or None for name in maybe}
    key, at = run_key(rule, run.at_ms), iso_utc(run.at_ms)
    return RuleRunView(rule=rule, key=key, at=at, state=run.state.value, **own)


def _view(found: RuleRecord, is_served: bool) -> RuleView:
    rule, history = found
    shown = rule.shown()
    ended = [run for run in history.runs if not run.state.is_open]
    times = [*islice(_due(found), _SHOWN_NEXT)]
    own = {name: shown[name] for name in RuleView.__struct_fields__ if name in shown}
    return RuleView(
        **{**own, "exclude": tuple(shown["exclude"]), "catch_up": CatchUp(rule.catch_up)},
        app=rule.app,
        state=_state(found),
        next_at_ms=times[0] if times else None,
        then_at_ms=tuple(times[1:]),
        open_runs=len(history.open),
        spent=history.spent,
        spent_today=history.spent_on(rule.schedule.day(now_ms())),
        last_run=run_view(rule.name, ended[-1]) if ended else None,
        served=is_served,
    )


def _due(found: RuleRecord) -> Iterator[int]:
    """Yield the times at which a rule comes due from now on."""
    from pushlane.pipeline.rules.history import next_due_ms

    at_ms = next_due_ms(*found)
    while at_ms is not None:
        yield at_ms
        at_ms = found.rule.schedule.first_after(at_ms)


def _state(found: RuleRecord) -> str:
    """Return what is under way, or else how the last run ended."""
    rule, history = found
    if begun := next((run for run in history.open if run.has_begun), None):
        return begun.state.value
    if rule.paused:
        return "paused"
    if history.open:
        return "due"
    return history.runs[-1].state.value if history.runs else "new"
