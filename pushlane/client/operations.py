"""The list of what a client can do, with the commands that do the same.

Another door is made by walking it. A new operation is a method in the file of its subject, an entry
here, and a line in `sync.py`; tests hold the three, and the commands, together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pushlane.client.dead import DeadOperations
from pushlane.client.looks import LookOperations
from pushlane.client.recipients import RecipientOperations
from pushlane.client.reports import ReportOperations
from pushlane.client.rules import RuleOperations
from pushlane.client.shares import ShareOperations
from pushlane.client.streams import StreamOperations
from pushlane.client.tasks import TaskOperations


class Operations(
    TaskOperations,
    StreamOperations,
    ShareOperations,
    LookOperations,
    ReportOperations,
    DeadOperations,
    RecipientOperations,
    RuleOperations,
):
    """All operations, on one connection."""


class Operation(NamedTuple):
    """One operation: its method, the commands that do the same, whether it changes."""

    call: Callable[..., Awaitable[Any]]
    commands: tuple[str, ...] = ()
    changes: bool = False

    @property
    def name(self) -> str:
        return self.call.__name__


def _looks(call: Callable[..., Awaitable[Any]], *commands: str) -> Operation:
    return Operation(call, commands)


def _changes(call: Callable[..., Awaitable[Any]], *commands: str) -> Operation:
    return Operation(call, commands, changes=True)


OPERATIONS = (
    _changes(Operations.submit, "submit"),
    _looks(Operations.tasks, "tasks"),
    _looks(Operations.find_tasks),
    _looks(Operations.task, "task show"),
    _looks(Operations.wait),
    _changes(Operations.pause, "pause"),
    _changes(Operations.resume, "resume"),
    _changes(Operations.cancel, "cancel"),
    _changes(Operations.promote, "promote"),
    _changes(Operations.demote, "demote"),
    _changes(Operations.set_quota, "quota"),
    _changes(Operations.set_stop_if_dead, "stop-if-dead"),
    _changes(Operations.reschedule, "reschedule"),
    _changes(Operations.forget, "forget"),
    _looks(Operations.unreadable_tasks),
    _looks(Operations.unreadable, "forget"),
    _changes(Operations.remove_unreadable, "forget"),
    _changes(Operations.clone, "clone"),
    _changes(Operations.replay, "replay"),
    _changes(Operations.put_stream, "streams put"),
    _looks(Operations.streams, "streams list"),
    _looks(Operations.stream, "streams show"),
    _changes(Operations.set_stream_quota, "streams quota"),
    _changes(Operations.pause_stream, "streams pause"),
    _changes(Operations.resume_stream, "streams resume"),
    _changes(Operations.end_stream, "streams end"),
    _looks(Operations.limits, "limits"),
    _looks(Operations.limit, "limit"),
    _changes(Operations.set_limit, "limit"),
    _changes(Operations.clear_limit, "limit"),
    _looks(Operations.app_quota, "quota"),
    _changes(Operations.set_app_quota, "quota"),
    _changes(Operations.clear_app_quota, "quota"),
    _looks(Operations.weights, "levels"),
    _changes(Operations.set_levels, "levels"),
    _looks(Operations.preview),
    _looks(Operations.me),
    _changes(Operations.apply, "apply"),
    _looks(Operations.processes, "processes"),
    _looks(Operations.formats, "formats"),
    _changes(Operations.set_formats, "formats"),
    _looks(Operations.pool, "pool"),
    _changes(Operations.set_pool, "pool"),
    _looks(Operations.sinks, "sinks list"),
    _looks(Operations.accepted_sink),
    _changes(Operations.accept_sink, "sinks accept"),
    _looks(Operations.audit, "audit"),
    _looks(Operations.why, "why"),
    _looks(Operations.overview, "why"),
    _looks(Operations.now, "top"),
    _looks(Operations.hour),
    _looks(Operations.task_hour),
    _looks(Operations.examine),
    _looks(Operations.results, "results"),
    _looks(Operations.receipts, "results"),
    _looks(Operations.ends, "results"),
    _looks(Operations.recipient_hashes, "results"),
    _looks(Operations.push, "push show"),
    _looks(Operations.trace, "trace"),
    _looks(Operations.report, "report"),
    _looks(Operations.reported, "report"),
    _looks(Operations.task_shares),
    _looks(Operations.dead, "dead list"),
    _looks(Operations.dead_push, "dead show"),
    _changes(Operations.retry_dead, "dead retry"),
    _changes(Operations.purge_dead, "dead purge"),
    _changes(Operations.suppress, "suppress add"),
    _changes(Operations.unsuppress, "suppress remove"),
    _looks(Operations.suppressions, "suppress count"),
    _looks(Operations.suppressed_in, "suppress check"),
    _changes(Operations.clear_suppressions, "suppress clear"),
    _looks(Operations.dead_addresses, "tokens dead"),
    _changes(Operations.register_address, "tokens register"),
    _changes(Operations.register_addresses, "tokens register"),
    _changes(Operations.record_events, "receipts add"),
    _changes(Operations.put_rule, "rules add"),
    _looks(Operations.rules, "rules list"),
    _looks(Operations.rule, "rules show"),
    _looks(Operations.rule_runs, "rules history"),
    _changes(Operations.pause_rule, "rules pause"),
    _changes(Operations.resume_rule, "rules resume"),
    _changes(Operations.run_rule, "rules run"),
    _changes(Operations.withdraw_rule_runs, "rules withdraw"),
    _changes(Operations.remove_rule, "rules remove"),
    _changes(Operations.put_alert, "alerts add"),
    _looks(Operations.alerts, "alerts list"),
    _looks(Operations.alert, "alerts show"),
    _looks(Operations.measure_alert, "alerts test"),
    _changes(Operations.acknowledge_alert, "alerts acknowledge"),
    _changes(Operations.remove_alert, "alerts remove"),
)
