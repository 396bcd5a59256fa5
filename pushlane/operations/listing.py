"""The list of all operations: the client, the commands and every other door stand on it.

A new operation is a struct in the module of its subject, a line here, and a method of the client.
"""

from __future__ import annotations

from typing import Any

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
from pushlane.operations.ends import HashRecipients, ListEnds
from pushlane.operations.events import RecordEvents
from pushlane.operations.examining import Examine
from pushlane.operations.finding import FindTasks
from pushlane.operations.hour import GetHour, GetTaskHour
from pushlane.operations.looks import GetOverview, GetPush, GetResults, ListReceipts, WhyTask
from pushlane.operations.now import GetNow
from pushlane.operations.operation import Operation
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

OPERATIONS: tuple[type[Operation[Any]], ...] = (
    GetTerms,
    CreateTask,
    GetSafeLine,
    SealTask,
    ListTasks,
    FindTasks,
    GetTask,
    PauseTask,
    ResumeTask,
    CancelTask,
    PromoteTask,
    DemoteTask,
    SetQuota,
    SetStopIfDead,
    RescheduleTask,
    ForgetTask,
    ListUnreadable,
    GetUnreadable,
    RemoveUnreadable,
    CloneTask,
    ReplayTask,
    PutStream,
    ListStreams,
    GetStream,
    SetStreamQuota,
    PauseStream,
    ResumeStream,
    EndStream,
    WhyTask,
    GetNow,
    GetHour,
    GetTaskHour,
    GetOverview,
    GetResults,
    ListReceipts,
    ListEnds,
    HashRecipients,
    GetPush,
    TracePushes,
    GetReport,
    ListReported,
    GetTaskShares,
    RecordEvents,
    ListDead,
    GetDead,
    RetryDead,
    CountDead,
    PurgeDead,
    Suppress,
    Unsuppress,
    CountSuppressions,
    CheckSuppressed,
    ClearSuppressions,
    ListDeadAddresses,
    RegisterAddresses,
    GetLevels,
    SetLevels,
    ListLimits,
    GetLimit,
    SetLimit,
    ClearLimit,
    GetAppQuota,
    SetAppQuota,
    ClearAppQuota,
    Preview,
    Apply,
    ListProcesses,
    GetFormats,
    SetFormats,
    GetPool,
    SetPool,
    ListSinks,
    GetAccepted,
    AcceptSink,
    PutRule,
    ListRules,
    GetRule,
    ListRuleRuns,
    PauseRule,
    ResumeRule,
    RunRule,
    WithdrawRuleRuns,
    RemoveRule,
    PutAlert,
    ListAlerts,
    GetAlert,
    MeasureAlert,
    AcknowledgeAlert,
    RemoveAlert,
    ListAudit,
    Examine,
    GetCaller,
    CreateToken,
    ListTokens,
    GetIssuer,
    RotateToken,
    RevokeToken,
    GetMode,
    SetMode,
)
