"""What a page says of the command line and of curl is so: each does just what it is shown for."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest

from pushlane.client.connection import Connection
from pushlane.console.commands import command_of
from pushlane.console.pages import elsewhere
from pushlane.core.errors import UserError
from pushlane.core.task import Level
from pushlane.model.limits import given_rate
from pushlane.model.presence import SinkTarget
from pushlane.operations.access import CreateToken, ListTokens, RevokeToken, RotateToken, SetMode
from pushlane.operations.alerts import AcknowledgeAlert, PutAlert
from pushlane.operations.dead import CountDead, GetDead, ListDead, PurgeDead, RetryDead
from pushlane.operations.ends import ListEnds
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.looks import GetPush, GetResults, ListReceipts
from pushlane.operations.now import GetNow
from pushlane.operations.operation import Operation
from pushlane.operations.processes import ListAudit, ListProcesses
from pushlane.operations.recipients import ClearSuppressions, CountSuppressions, ListDeadAddresses
from pushlane.operations.replays import ReplayTask
from pushlane.operations.reports import GetReport, ListReported
from pushlane.operations.rules import GetRule, ListRuleRuns, RemoveRule, RunRule, WithdrawRuleRuns
from pushlane.operations.shares import SetAppQuota, SetLimit
from pushlane.operations.sinks import AcceptSink
from pushlane.operations.streams import GetStream, PauseStream, PutStream, ResumeStream
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    ForgetTask,
    GetTask,
    ListTasks,
    PauseTask,
    PromoteTask,
    RescheduleTask,
)
from pushlane.operations.tracing import TracePushes
from tests.command import run_here
from tests.operations.test_scopes import EXAMPLES

PAST_MS, COMING_MS = 1_700_000_000_123, 32_000_000_000_000
TASK = "t-1"
DEAD: Any = {"task": TASK, "reason": "HTTP 410", "older_than_s": 60, "newer_than_s": 7_200}
FULL: tuple[Operation[Any], ...] = (
    ListTasks(state=("paused", "running"), find="a b", app="shop", level=Level.HIGH),
    PauseTask(task="-x", reason="it's late"),
    PromoteTask(task=TASK, level=Level.HIGH),
    DemoteTask(task=TASK, level=Level.LOW),
    RescheduleTask(
        task=TASK, not_before_ms=COMING_MS, expires_at_ms=COMING_MS, quiet="22:00-08:00", zone="UTC"
    ),
    RescheduleTask(task=TASK, not_before_ms=0, expires_at_ms=0, quiet=""),
    ReplayTask(task=TASK, since_ms=PAST_MS),
    PutStream(
        name="paid",
        level=Level.LOW,
        app="shop",
        quota=3,
        sinks=("a", "b"),
        max_attempts=2,
        expires_after_s=7_200.0,
        rate_per_s=2.5,
        in_flight=4,
    ),
    PauseStream(name="paid", app="shop", reason="a b"),
    ListReceipts(task=TASK, recipient="who", trace_id="5"),
    ListReceipts(recipient_of="t-1-1"),
    GetReport(task=TASK, since_ms=PAST_MS, until_ms=PAST_MS, where=("a=b", "c=d"), latency=True),
    GetReport(by="app,task", recipients=True),
    ListReported(task=TASK, since_ms=PAST_MS, until_ms=PAST_MS, where=("outcome=dead",)),
    ListDead(**DEAD),
    GetDead(push="t-1-1", reveal=True),
    GetPush(push="t-1-1", reveal=True),
    TracePushes(what="t-1-1", reveal=True, since_ms=PAST_MS),
    RetryDead(**DEAD, pushes=("t-1-1", "t-1-2"), limit=5),
    RetryDead(all_there_are=True),
    PurgeDead(**DEAD, pushes=("t-1-1",), limit=5),
    PurgeDead(all_there_are=True),
    CountDead(**DEAD, pushes=("t-1-1",), limit=5),
    CountDead(all_there_are=True),
    ListDeadAddresses(since_ms=PAST_MS, sink="fcm"),
    SetLimit(
        subject="app/*",
        rate_per_s=0.5,
        in_flight=5,
        total=9,
        total_cost=1.5,
        a_day=8,
        cost_a_day=2.5,
        recipient_a_day={"low": 2, "all": 5},
    ),
    SetLimit(subject="sink/push", rate_per_s=None, total=None, recipient_a_day=None),
    SetLimit(subject=TASK, rate_per_s="600/min"),
    SetAppQuota(app="*", quota=2, high_part=0.5),
    SetAppQuota(app="shop", high_part=0.5),
    AcceptSink(sink="push", undo=True),
    PutAlert.made(
        name="many",
        metric="dead",
        when="> 5",
        to="https://hooks.example.com/a",
        app="shop",
        by="level",
        where=("sink=fcm",),
        window_s=600,
        for_s=60,
        at_least=7,
        remind_s=3_600,
        replace=True,
    ),
    AcknowledgeAlert(name="many", group='["app=a b"]', reason="it's known", undo=True),
    ListAudit(find="a b"),
    ListRuleRuns(name="weekly"),
    RunRule(name="weekly", at_ms=PAST_MS),
    WithdrawRuleRuns(name="weekly", at_ms=PAST_MS),
    GetStream(name="paid", app="shop"),
    ResumeStream(name="paid", app="shop"),
    ClearSuppressions(sink="fcm"),
    CreateToken.made(
        name="dana",
        grants="submitter",
        apps=("a", "b"),
        levels=("low",),
        sinks=("fcm",),
        most_quota=3,
        most_per_s=2.5,
        requests_per_s=9.5,
        lasts_s=86_400,
    ),
    RotateToken(token=TASK, keep_s=0.0),
    SetMode(read_only=True, reason="a b"),
    SetMode(read_only=False),
)
"""Operations with all that they take; what excludes each other is in several."""

NOT_TAKEN: tuple[Operation[Any], ...] = (
    ListReceipts(task=TASK, seq=1),
    SetLimit(subject="app/shop", quota=3),
    SetLimit(subject="app/shop", high_part=0.5),
    ListDeadAddresses(after=4),
    AcceptSink(sink="push", target=SinkTarget("webhook")),
)
"""Operations with something that no command takes."""

LOOKS_FIRST: dict[type[Operation[Any]], type[Operation[Any]]] = {
    AcceptSink: ListProcesses,
    CancelTask: GetTask,
    ClearSuppressions: CountSuppressions,
    ForgetTask: GetTask,
    ListEnds: GetResults,
    RemoveRule: GetRule,
    RevokeToken: ListTokens,
    PurgeDead: CountDead,
}
"""What is looked at first by the commands that ask before they do something, or show more."""

TOLD = [one for kind, make in EXAMPLES.items() if command_of(one := make(TASK, "shop"))]
WITHOUT_COMMAND = {
    "get-terms",
    "create-task",
    "get-safe-line",
    "seal-task",
    "find-tasks",
    "get-hour",
    "get-task-hour",
    "get-task-shares",
    "preview",
    "get-accepted",
    "examine",
    "get-caller",
    "get-issuer",
    "record-events",
    "register-addresses",
    "suppress",
    "unsuppress",
    "put-rule",
    "get-unreadable",
    "list-unreadable",
    "remove-unreadable",
    "hash-recipients",
    "list-receipts",  # the example is of one push by its seq
}


class _Asked(UserError):
    """Ends a command where it does something."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Operation[Any]]:
    """What commands do, instead of doing it."""
    found: list[Operation[Any]] = []

    async def do(self: Connection, operation: Operation[Any], *begun: Any) -> None:
        found.append(operation)
        raise _Asked("asked")

    monkeypatch.setattr(Connection, "do", do)
    monkeypatch.setenv("PUSHLANE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PUSHLANE_TOKEN", "none")
    return found


@pytest.mark.parametrize("operation", [*TOLD, *FULL], ids=lambda one: type(one).__name__)
def test_the_command_told_does_the_operation(
    asked: list[Operation[Any]], operation: Operation[Any]
) -> None:
    command = command_of(operation)

    more = ("--once",) if isinstance(operation, GetNow) else ()  # there is no terminal
    said = run_here(*shlex.split(command)[1:], *more).stderr

    first = LOOKS_FIRST.get(type(operation))
    assert asked, f"{command}: {said}"  # else it was refused before it did anything
    if first is None:
        assert [_plain(one) for one in asked] == [_plain(operation)], command
    else:
        assert [type(one) for one in asked] == [first], command


_FORM = {"limit", "cursor", "rows_alone", "newest_first", "sealed", "hashes"}
"""How much is shown at a time, and in which form."""


def _plain(operation: Operation[Any]) -> Operation[Any]:
    """The operation without the form of its answer, and with a rate as a number."""
    kind = type(operation)
    fields = msgspec.structs.asdict(operation)
    if kind not in (RetryDead, PurgeDead, CountDead):  # which do something to so many
        fields = {name: one for name, one in fields.items() if name not in _FORM}
    if isinstance(given := fields.get("rate_per_s"), str):
        fields["rate_per_s"] = given_rate("rate", given)
    return kind(**fields)


def test_only_what_no_command_does_is_told_none() -> None:
    without = {kind.word() for kind in OPERATIONS} - {type(one).word() for one in TOLD}

    assert without == WITHOUT_COMMAND


def test_each_parameter_of_a_command_is_tried() -> None:
    tried = {(type(one), name) for one in (*TOLD, *FULL, *NOT_TAKEN) for name in _given(one)}
    all_there_are = {
        (kind, field.name)
        for kind in {type(one) for one in TOLD}
        for field in msgspec.structs.fields(kind)
        if field.name not in _FORM
    }

    assert {(one.__name__, name) for one, name in all_there_are - tried} == set()


def _given(operation: Operation[Any]) -> set[str]:
    fields = msgspec.structs.fields(type(operation))
    return {
        field.name
        for field in fields
        if field.required or getattr(operation, field.name) != field.default
    }


@pytest.mark.parametrize("operation", NOT_TAKEN, ids=lambda one: type(one).__name__)
def test_a_command_that_would_do_something_else_is_not_told(operation: Operation[Any]) -> None:
    assert command_of(operation) == ""


def test_what_is_asked_over_http_is_quoted_for_the_shell() -> None:
    odd = elsewhere(PauseTask(task="a b", reason="it's $HOME"))
    words = shlex.split(odd.curl)

    assert odd.command == "pushlane pause 'a b' --reason 'it'\"'\"'s $HOME'"
    assert words[3] == "$URL/v1/tasks/a%20b/pause"
    assert words[-1] == '{"reason":"it\'s $HOME"}'
