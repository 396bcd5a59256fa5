"""What a caller of some apps sees of others: nothing, whatever it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import pushlane.diagnosis.look
from pushlane import Settings, UserError
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import BadInput
from pushlane.core.names import dead_lane
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, Task, now_ms
from pushlane.model.access import Access, Role
from pushlane.model.receipt import Event
from pushlane.operations.access import (
    CreateToken,
    GetCaller,
    GetIssuer,
    GetMode,
    ListTokens,
    RevokeToken,
    RotateToken,
    SetMode,
)
from pushlane.operations.alerts import (
    AcknowledgeAlert,
    GetAlert,
    ListAlerts,
    MeasureAlert,
    PutAlert,
    RemoveAlert,
)
from pushlane.operations.dead import CountDead, GetDead, ListDead, PurgeDead, RetryDead
from pushlane.operations.doing import do
from pushlane.operations.ends import HashRecipients, ListEnds
from pushlane.operations.events import DeviceEvent, RecordEvents
from pushlane.operations.examining import Examine
from pushlane.operations.finding import FindTasks
from pushlane.operations.hour import GetHour, GetTaskHour
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.looks import GetOverview, GetPush, GetResults, ListReceipts, WhyTask
from pushlane.operations.now import GetNow
from pushlane.operations.operation import Of, Operation
from pushlane.operations.pool import GetPool, SetPool
from pushlane.operations.previewing import Apply, Preview
from pushlane.operations.processes import GetFormats, ListAudit, ListProcesses, SetFormats
from pushlane.operations.receiving import CreateTask, GetSafeLine, GetTerms, SealTask
from pushlane.operations.recipients import (
    CheckSuppressed,
    ClearSuppressions,
    CountSuppressions,
    ListDeadAddresses,
    RegisterAddresses,
    Suppress,
    Unsuppress,
)
from pushlane.operations.replays import CloneTask, ReplayTask
from pushlane.operations.reports import GetReport, GetTaskShares, ListReported
from pushlane.operations.rules import (
    GetRule,
    ListRuleRuns,
    ListRules,
    PauseRule,
    PutRule,
    RemoveRule,
    ResumeRule,
    RunRule,
    WithdrawRuleRuns,
)
from pushlane.operations.session import Caller
from pushlane.operations.shares import (
    ClearAppQuota,
    ClearLimit,
    GetAppQuota,
    GetLevels,
    GetLimit,
    ListLimits,
    SetAppQuota,
    SetLevels,
    SetLimit,
)
from pushlane.operations.sinks import AcceptSink, GetAccepted, ListSinks
from pushlane.operations.streams import (
    EndStream,
    GetStream,
    ListStreams,
    PauseStream,
    PutStream,
    ResumeStream,
    SetStreamQuota,
)
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    ForgetTask,
    GetTask,
    ListTasks,
    PauseTask,
    PromoteTask,
    RescheduleTask,
    ResumeTask,
    SetQuota,
    SetStopIfDead,
)
from pushlane.operations.tracing import TracePushes
from pushlane.operations.unreadable import GetUnreadable, ListUnreadable, RemoveUnreadable
from pushlane.operations.views import plain
from pushlane.pipeline.alerts.alert_rule import Metric
from pushlane.pipeline.rules import history
from pushlane.pipeline.rules.rule_store import RuleStore
from pushlane.util.errors import NotAllowed, NotFound, UnknownTask
from tests.receipt_bodies import body

MARK = "secret-of-b"
KEPT = ("limit", "rule", "rule-history", "alert")
OURS, THEIRS = "ours", f"{MARK}-task"
A, B = "app-a", f"{MARK}-app"


def clicked(task: str) -> DeviceEvent:
    return DeviceEvent(push_id=f"{task}-1", event=Event.CLICKED, at_ms=2_000_000_000_000)


def a_rule(name: str, app: str) -> PutRule:
    task = {"level": "low", "title": f"Hi of {app}", "app": app}
    return PutRule(name=name, audience="users", cron="0 9 * * MON", task=task)


def an_alert(name: str, app: str) -> PutAlert:
    to = "https://hooks.example.com/alerts"
    return PutAlert(name=name, metric=Metric.DEAD, when="> 5", to=to, app=app)


Make = Callable[[str, str], Operation[Any]]

EXAMPLES: dict[type[Operation[Any]], Make] = {
    ListDead: lambda task, app: ListDead(task=task),
    GetDead: lambda task, app: GetDead(push=f"{task}-1"),
    RetryDead: lambda task, app: RetryDead(task=task),
    CountDead: lambda task, app: CountDead(pushes=(f"{task}-1",)),
    PurgeDead: lambda task, app: PurgeDead(task=task),
    Suppress: lambda task, app: Suppress(values=("a",), app=app),
    Unsuppress: lambda task, app: Unsuppress(values=("a",), app=app),
    CountSuppressions: lambda task, app: CountSuppressions(),
    CheckSuppressed: lambda task, app: CheckSuppressed(value="a"),
    ClearSuppressions: lambda task, app: ClearSuppressions(app=app),
    ListDeadAddresses: lambda task, app: ListDeadAddresses(),
    RegisterAddresses: lambda task, app: RegisterAddresses(sink="default", values=("a",)),
    GetTerms: lambda task, app: GetTerms(level=Level.HIGH, app=app, key=task),
    CreateTask: lambda task, app: CreateTask(level=Level.HIGH, app=app, key=task),
    GetSafeLine: lambda task, app: GetSafeLine(task=task),
    SealTask: lambda task, app: SealTask(task=task, total=0),
    ListTasks: lambda task, app: ListTasks(state=("any",), app=app),
    FindTasks: lambda task, app: FindTasks(state=("any",), app=app),
    GetTask: lambda task, app: GetTask(task=task),
    PauseTask: lambda task, app: PauseTask(task=task),
    ResumeTask: lambda task, app: ResumeTask(task=task),
    CancelTask: lambda task, app: CancelTask(task=task),
    PromoteTask: lambda task, app: PromoteTask(task=task),
    DemoteTask: lambda task, app: DemoteTask(task=task),
    SetQuota: lambda task, app: SetQuota(task=task, quota=3),
    SetStopIfDead: lambda task, app: SetStopIfDead(task=task, rule="5%"),
    RescheduleTask: lambda task, app: RescheduleTask(task=task, not_before_ms=0),
    ForgetTask: lambda task, app: ForgetTask(task=task),
    ListUnreadable: lambda task, app: ListUnreadable(),
    GetUnreadable: lambda task, app: GetUnreadable(task=task),
    RemoveUnreadable: lambda task, app: RemoveUnreadable(task=task),
    CloneTask: lambda task, app: CloneTask(task=task),
    ReplayTask: lambda task, app: ReplayTask(task=task, since_ms=0),
    WhyTask: lambda task, app: WhyTask(task=task),
    GetOverview: lambda task, app: GetOverview(),
    GetResults: lambda task, app: GetResults(task=task),
    ListReceipts: lambda task, app: ListReceipts(task=task, seq=1),
    ListEnds: lambda task, app: ListEnds(task=task, hashes=True),
    HashRecipients: lambda task, app: HashRecipients(recipients=("a",)),
    GetTaskShares: lambda task, app: GetTaskShares(task=task),
    GetReport: lambda task, app: GetReport(by="app,task,reason"),
    ListReported: lambda task, app: ListReported(where=(f"task!={task}",)),
    GetPush: lambda task, app: GetPush(push=f"{task}-1"),
    TracePushes: lambda task, app: TracePushes(what=f"{task}-1"),
    RecordEvents: lambda task, app: RecordEvents(events=(clicked(task),)),
    PutStream: lambda task, app: PutStream(name="news", level=Level.HIGH, app=app),
    ListStreams: lambda task, app: ListStreams(),
    GetStream: lambda task, app: GetStream(name="paid", app=app),
    PauseStream: lambda task, app: PauseStream(name="paid", app=app),
    ResumeStream: lambda task, app: ResumeStream(name="paid", app=app),
    SetStreamQuota: lambda task, app: SetStreamQuota(name="paid", quota=2, app=app),
    EndStream: lambda task, app: EndStream(name="paid", app=app),
    GetLevels: lambda task, app: GetLevels(),
    Preview: lambda task, app: Preview(
        operation="set-quota", parameters={"task": task, "quota": 3}
    ),
    Apply: lambda task, app: Apply(token="none"),
    SetLevels: lambda task, app: SetLevels(weights="1:1:1"),
    ListLimits: lambda task, app: ListLimits(),
    GetLimit: lambda task, app: GetLimit(subject=f"app/{app}"),
    SetLimit: lambda task, app: SetLimit(subject=task, total=5),
    ClearLimit: lambda task, app: ClearLimit(subject=f"app/{app}"),
    GetAppQuota: lambda task, app: GetAppQuota(app=app),
    SetAppQuota: lambda task, app: SetAppQuota(app=app, quota=2),
    ClearAppQuota: lambda task, app: ClearAppQuota(app=app),
    ListProcesses: lambda task, app: ListProcesses(),
    GetFormats: lambda task, app: GetFormats(),
    SetFormats: lambda task, app: SetFormats(min_format=2),
    GetPool: lambda task, app: GetPool(),
    SetPool: lambda task, app: SetPool(lanes=3),
    ListSinks: lambda task, app: ListSinks(),
    GetAccepted: lambda task, app: GetAccepted(sink="default"),
    AcceptSink: lambda task, app: AcceptSink(sink="default"),
    ListAudit: lambda task, app: ListAudit(),
    PutRule: a_rule,
    ListRules: lambda task, app: ListRules(),
    GetRule: lambda task, app: GetRule(name=task),
    ListRuleRuns: lambda task, app: ListRuleRuns(),
    PauseRule: lambda task, app: PauseRule(name=task),
    ResumeRule: lambda task, app: ResumeRule(name=task),
    RunRule: lambda task, app: RunRule(name=task),
    WithdrawRuleRuns: lambda task, app: WithdrawRuleRuns(name=task),
    RemoveRule: lambda task, app: RemoveRule(name=task),
    PutAlert: an_alert,
    ListAlerts: lambda task, app: ListAlerts(),
    GetAlert: lambda task, app: GetAlert(name=task),
    MeasureAlert: lambda task, app: MeasureAlert(name=task),
    AcknowledgeAlert: lambda task, app: AcknowledgeAlert(name=task),
    RemoveAlert: lambda task, app: RemoveAlert(name=task),
    GetCaller: lambda task, app: GetCaller(),
    GetNow: lambda task, app: GetNow(),
    Examine: lambda task, app: Examine(),
    GetHour: lambda task, app: GetHour.made(by="app"),
    GetTaskHour: lambda task, app: GetTaskHour(task=task),
    CreateToken: lambda task, app: CreateToken(name=app, grants=Role.VIEWER),
    ListTokens: lambda task, app: ListTokens(),
    GetIssuer: lambda task, app: GetIssuer(),
    RotateToken: lambda task, app: RotateToken(token=task),
    RevokeToken: lambda task, app: RevokeToken(token=task),
    GetMode: lambda task, app: GetMode(),
    SetMode: lambda task, app: SetMode(read_only=True),
}
"""One of each, about a task and an app."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the two looks at a task follow each other without a second between."""
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


each = pytest.mark.parametrize("kind", OPERATIONS, ids=lambda one: one.__name__)


def caller(role: Role = Role.ADMIN, *apps: str) -> Caller:
    return Caller("ada", "http", Access(role, frozenset(apps or [A])))


async def fill(backend: Backend, settings: Settings) -> None:
    """A task, a rule and an alert of each app, with a limit, a quota and entries in the audit."""
    admin = Caller("root", "cli")
    for task, app in ((OURS, A), (THEIRS, B)):
        made = Task(
            id=f"{task}-id",
            level=Level.HIGH,
            lane=f"task-{task}-id",
            name=f"{task}-name",
            key=f"{task}-key",
            app=app,
        )
        await backend.registry.add(made)
        await do(backend, settings, admin, SetLimit(subject=f"app/{app}", total=9))
        await do(backend, settings, admin, SetLimit(subject=made.id, total=9))
        await do(backend, settings, admin, SetAppQuota(app=app, quota=4))
        await do(backend, settings, admin, Suppress(values=("a",), app=app))
        await do(backend, settings, admin, SetQuota(task=made.id, quota=7))
        await do(backend, settings, admin, PutStream(name="paid", level=Level.LOW, app=app))
        await do(backend, settings, admin, a_rule(made.id, app))
        await RuleStore(backend.documents).change_history(made.id, history.request_run(5))
        await do(backend, settings, admin, an_alert(made.id, app))
        dead = DeadPush(made.id, 1, 5, f"HTTP 410 {task}", now_ms(), encode(Push(made.id, 1, task)))
        why = f"HTTP 410 {task}"
        said = body(made.id, [1, 2], at_ms=now_ms() - 60_000, reason=why, app=app)
        await backend.receipts.append([said])
        await backend.broker.open_lane(dead_lane(made.id))
        await backend.broker.publish(dead_lane(made.id), [encode_dead(dead)])


@each
@pytest.mark.parametrize("word", ["id", "key", "name"])
async def test_nothing_shows_a_mark_of_another_app(
    settings: Settings, kind: type[Operation[Any]], word: str
) -> None:
    async with connect(settings) as backend:
        await fill(backend, settings)
        theirs = await backend.registry.get(f"{THEIRS}-id")
        before = [await backend.documents.list(kind) for kind in KEPT]

        for task, app in ((f"{OURS}-{word}", A), (f"{THEIRS}-{word}", A), (f"{OURS}-id", B)):
            asked = EXAMPLES[kind](task, app)
            try:
                shown = str(plain(await do(backend, settings, caller(), asked)))
            except UserError as error:
                shown = str(error)
            assert MARK not in shown.replace(task, "").replace(app, "")  # it may have its own words

        assert await backend.registry.get(f"{THEIRS}-id") == theirs
        after = [await backend.documents.list(kind) for kind in KEPT]
        for was, there in zip(before, after, strict=True):
            assert {one for one in was if MARK in one.name} <= {*there}


@each
async def test_what_is_of_a_task_or_an_app_is_refused_as_if_it_were_not_there(
    settings: Settings, kind: type[Operation[Any]]
) -> None:
    if kind.of not in (Of.TASK, Of.APP):
        return
    async with connect(settings) as backend:
        await fill(backend, settings)
        errors = []
        for task, app in ((f"{THEIRS}-id", B), ("no-such-task", "no-such-app")):
            with pytest.raises(NotFound) as caught:
                await do(backend, settings, caller(), EXAMPLES[kind](task, app))
            errors.append(str(caught.value).replace(task, "X").replace(app, "X"))

        assert errors[0] == errors[1]


@each
async def test_what_all_apps_share_is_for_who_sees_them_all(
    settings: Settings, kind: type[Operation[Any]]
) -> None:
    async with connect(settings) as backend:
        await fill(backend, settings)
        asked = EXAMPLES[kind](f"{OURS}-id", A)
        if kind.of is Of.EVERYTHING:
            with pytest.raises(NotAllowed, match=f"is about all apps, and ada.* is for {A} alone"):
                await do(backend, settings, caller(), asked)


@each
@pytest.mark.parametrize("role", list(Role))
async def test_a_role_does_what_it_may(
    settings: Settings, kind: type[Operation[Any]], role: Role
) -> None:
    async with connect(settings) as backend:
        await fill(backend, settings)
        refused = await refusal(backend, settings, Caller("ada", "http", Access(role)), kind)

    assert (f"needs {kind.role}" in refused) == (not role.may(kind.role))


async def refusal(
    backend: Backend, settings: Settings, who: Caller, kind: type[Operation[Any]]
) -> str:
    """Why the example is not done, empty when it is."""
    try:
        await do(backend, settings, who, EXAMPLES[kind](f"{OURS}-id", A))
    except UserError as error:
        return str(error)
    return ""


def test_there_is_an_example_of_each() -> None:
    assert EXAMPLES.keys() == set(OPERATIONS)


async def test_a_caller_of_two_apps_lists_the_tasks_of_both(settings: Settings) -> None:
    async with connect(settings) as backend:
        await fill(backend, settings)

        both = await do(backend, settings, caller(Role.VIEWER, A, B), ListTasks(state=("any",)))
        one = await do(backend, settings, caller(Role.VIEWER, A), ListTasks(state=("any",)))

    assert [task.app for task in both] == [A, B]
    assert [task.app for task in one] == [A]
    assert msgspec.json.encode(plain(one))


async def test_dead_pushes_of_no_task_or_any_are_for_who_sees_all_apps(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        await fill(backend, settings)
        for asked in (ListDead(), ListDead(reason="410"), RetryDead(all_there_are=True)):
            with pytest.raises(BadInput, match=f"name a task of {A}: you see no others"):
                await do(backend, settings, caller(), asked)
        with pytest.raises(UnknownTask):
            await do(backend, settings, caller(), ListDead(task="-"))
        ours = await do(backend, settings, caller(), ListDead(task=f"{OURS}-name"))

        assert [one.push for one in ours.dead] == [f"{OURS}-id-1"]
        assert len((await do(backend, settings, Caller("root", "cli"), ListDead())).dead) == 2
