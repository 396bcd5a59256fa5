"""The alerts: what is wrong, from when on, and why these numbers.

Each looks at one installation at a time. What the leader says goes away while nobody leads;
PushlaneNoLeader says so, and the others wait until somebody does.
"""

from __future__ import annotations

from pushlane.util.metrics import MetricDefinition
from scripts.monitoring.expression import (
    INSTALLATION,
    Expression,
    Selection,
    absent,
    binary,
    grouped,
    over_time,
    seconds_since,
)
from scripts.monitoring.known import known
from scripts.monitoring.rules import Alert, Severity

EVERYWHERE = Selection({}, INSTALLATION)

_OLDEST_S = {"high": 300, "medium": 1800, "low": 21_600}
_TOLERANCE = 1.1  # the same as a horizontal pod autoscaler's: within it nothing scales
_SHORT_BY = 0.1
_WINDOW_S = 60
_DYING = 0.05
_MANY_DEAD = 20
_RECEIPTS_LATE_S = 900
_DISK_FREE = 0.1
_IDLE_S = 900
_MANY_RESTARTS = 2


def alerts() -> tuple[Alert, ...]:
    """Return all alerts, the worst first."""
    return (
        *_of_processes(),
        *_of_restarts_and_clocks(),
        *_of_sinks(),
        *_of_backlog(),
        *_of_the_rest(),
        *_of_receipts(),
        *_of_the_pipeline(),
    )


def _of_processes() -> tuple[Alert, ...]:
    leaders = known("pushlane_leader")
    return (
        Alert(
            "PushlaneNoDispatcher",
            binary(_gone(leaders), "or", absent(leaders)),
            "3m",
            Severity.CRITICAL,
            "no dispatcher runs",
            "Nothing is sent: Prometheus reads no dispatcher, or none any more where there was one "
            "in the last hour. Three minutes are more than a restart of all takes.",
            "no-dispatcher",
        ),
        Alert(
            "PushlaneNoLeader",
            binary(EVERYWHERE.total(leaders), "==", 0),
            "2m",
            Severity.CRITICAL,
            "none of the dispatchers leads",
            "Pushes go on, but nobody ends tasks, drops their lanes or recovers what a process "
            "left, and backlog, shares and seconds to drain are not known, so nothing scales. A "
            "leader that was killed is replaced within ten seconds.",
            "no-leader",
        ),
        _lost(
            "PushlaneBrokerLost",
            "pushlane_broker_up",
            "dispatchers that do not reach the broker: {{ $value }}",
            "These dispatchers neither get pushes nor settle what they sent. Nothing is lost; they "
            "go on by themselves. A broker's restart takes less than two minutes.",
            "broker-lost",
        ),
        _lost(
            "PushlaneRedisLost",
            "pushlane_registry_up",
            "dispatchers that do not reach the registry: {{ $value }}",
            "These dispatchers go on with what they have at hand and then wait; they hear of no "
            "change of tasks, quotas and limits. Nothing is lost; they go on by themselves.",
            "redis-lost",
        ),
    )


def _of_restarts_and_clocks() -> tuple[Alert, ...]:
    restarts = known("pushlane_worker_restarts_total")
    waiting = known("pushlane_housekeeping_waits")
    return (
        Alert(
            "PushlaneWorkersRestart",
            binary(EVERYWHERE.increase(restarts, over="30m"), ">", _MANY_RESTARTS),
            "1m",
            Severity.WARNING,
            "workers were started again {{ $value | humanize }} times in 30 minutes",
            "They are killed, hang or die of a fault, and each time what they had in flight is "
            "sent again or buried. One that did so once is well again; the log has the reason of "
            "each (worker_restarts). The fifth end of a worker within ten minutes ends all.",
            "workers-restart",
        ),
        Alert(
            "PushlaneClocksApart",
            binary(EVERYWHERE.total(waiting), ">", 0),
            "15m",
            Severity.WARNING,
            "clocks differ, so nothing expires, is dropped or forgotten",
            "The clock of the dispatcher that leads and that of Redis differ by over a minute, and "
            "nobody can tell which is right. Deliveries go on. After a step of a clock that agrees "
            "again this lasts ten minutes, so fifteen are no single step.",
            "clocks-apart",
        ),
    )


def _gone(metric: MetricDefinition) -> Expression:
    """Tell what nobody shows any more that somebody showed within the last hour."""
    now = EVERYWHERE.count(metric)
    return binary(over_time("max", now, "1h"), "unless", now)


def _lost(name: str, metric: str, summary: str, description: str, runbook: str) -> Alert:
    """Return an alert for whoever does not reach a service; one process alone may be cut off."""
    reaches = known(metric)
    unable = binary(EVERYWHERE.count(reaches), "-", EVERYWHERE.total(reaches))
    return Alert(
        name, binary(unable, ">", 0), "2m", Severity.CRITICAL, summary, description, runbook
    )


def _of_sinks() -> tuple[Alert, ...]:
    state = known("pushlane_sink_state")
    outcomes = known("pushlane_outcomes_total")
    refuses = binary(EVERYWHERE.total(known("pushlane_sink_refuses_us"), "sink"), ">", 0)
    resting = binary(
        EVERYWHERE.total(state, "sink", state=("open", "probing")),
        "/",
        EVERYWHERE.total(state, "sink"),
    )
    dying = binary(
        EVERYWHERE.rate(outcomes, "sink", over="10m", outcome="dead"),
        "/",
        EVERYWHERE.rate(outcomes, "sink", over="10m", outcome=("delivered", "dead")),
    )
    died = EVERYWHERE.increase(outcomes, "sink", over="10m", outcome="dead")
    return (
        Alert(
            "PushlaneSinkRefuses",
            refuses,
            "2m",
            Severity.CRITICAL,
            "sink {{ $labels.sink }} refuses our credentials",
            "Its pushes wait, and none is lost however long that takes; nothing but somebody who "
            "renews the credentials ends it. They are read again when their file changes.",
            "a-sink-refuses-our-credentials",
        ),
        Alert(
            "PushlaneSinkRests",
            binary(binary(resting, ">", 0.5), "unless", refuses),
            "5m",
            Severity.CRITICAL,
            "sink {{ $labels.sink }} rests at {{ $value | humanizePercentage }} of the dispatchers",
            "It takes nothing, so its pushes wait and lose no attempt; it is probed every 4 s, and "
            "goes on by itself. Half of the dispatchers: one alone may have a bad network.",
            "a-sink-rests",
        ),
        Alert(
            "PushlanePushesDie",
            binary(binary(dying, ">", _DYING), "and", binary(died, ">", _MANY_DEAD)),
            "5m",
            Severity.WARNING,
            "{{ $value | humanizePercentage }} of the pushes of sink {{ $labels.sink }} die",
            f"More than {_DYING:.0%} of what ended in 10 minutes, and more than {_MANY_DEAD} "
            "pushes: a few bad addresses are usual. The panel of dead pushes has the reasons.",
            "many-pushes-die",
        ),
    )


def _of_backlog() -> tuple[Alert, ...]:
    drain = EVERYWHERE.once(known("pushlane_drain_seconds"))
    backlog = EVERYWHERE.once(known("pushlane_backlog"))
    waiting = EVERYWHERE.once(known("pushlane_drain_backlog"))
    target = EVERYWHERE.once(known("pushlane_drain_target_seconds"))
    late = binary(drain, ">", binary(target, "*", _TOLERANCE))
    return (
        Alert(
            "PushlaneLagGrows",
            binary(late, "and", _does_not_fall(waiting)),
            "10m",
            Severity.WARNING,
            "the backlog of sink {{ $labels.sink }} needs {{ $value | humanizeDuration }} and does "
            "not fall",
            "It needs over a tenth longer than the target (drain_target_s), and its lowest point "
            "of the last 10 minutes is no lower than that of the 10 before. The backlog of a large "
            "task that is being sent falls, so it does not count, however long it needs; what "
            "limits hold back counts for no longer than the target.",
            "lag-grows",
        ),
        Alert(
            "PushlaneTaskWaits",
            binary(_old(), "and", _does_not_fall(backlog)),
            "5m",
            Severity.WARNING,
            "a task of level {{ $labels.level }} for sink {{ $labels.sink }} waits for "
            "{{ $value | humanizeDuration }}",
            "The oldest task of a level waits longer than 5 minutes (high), 30 (medium) or 6 hours "
            "(low), while the level's backlog does not fall. `pushlane why TASK` says what it "
            "waits for.",
            "a-task-waits",
        ),
        _level_short(),
    )


def _level_short() -> Alert:
    observed = EVERYWHERE.once(known("pushlane_observed_share"))
    short = binary(EVERYWHERE.once(known("pushlane_entitled_share")), "-", observed)
    sends = binary(grouped("sum", observed, *INSTALLATION, "sink"), ">", 0)
    backlog, rate = (EVERYWHERE.once(known(f"pushlane_{one}")) for one in ("backlog", "rate"))
    more = binary(backlog, ">", binary(rate, "*", _WINDOW_S))
    return Alert(
        "PushlaneLevelShort",
        binary(binary(binary(short, ">", _SHORT_BY), "and", sends), "and", more),
        "10m",
        Severity.WARNING,
        "level {{ $labels.level }} lacks {{ $value | humanizePercentage }} of sink "
        "{{ $labels.sink }}",
        f"It gets over {_SHORT_BY:.0%} of all pushes less than its weight entitles it to, for "
        "ten windows of a minute in a row, while the sink takes pushes and more of the level "
        "waits than a minute of its own: a stream that has no more to send is not short. A "
        "change of weights shows within one; a level whose deliveries take longer than others' "
        "has its part of the slots instead.",
        "a-level-is-short",
    )


def _does_not_fall(backlog: Expression) -> Expression:
    """Compare lowest points: what comes in bursts and is worked off reaches a low one each time."""
    return binary(
        over_time("min", backlog, "10m"), ">=", over_time("min", backlog, "10m", ago="10m")
    )


def _old() -> Expression:
    age = known("pushlane_oldest_age_seconds")
    high, medium, low = (
        binary(EVERYWHERE.once(age, level=level), ">", most) for level, most in _OLDEST_S.items()
    )
    return binary(binary(high, "or", medium), "or", low)


def _of_the_rest() -> tuple[Alert, ...]:
    free = binary(
        EVERYWHERE.lowest(known("pushlane_disk_free_bytes"), "instance", "dir"),
        "/",
        EVERYWHERE.lowest(known("pushlane_disk_size_bytes"), "instance", "dir"),
    )
    versions = EVERYWHERE.count(known("pushlane_info"), "version")
    several = grouped("count", versions, *INSTALLATION)
    lasting = binary(
        binary(over_time("min", several, "1h"), ">", 1),
        "and",
        over_time("min", several, "5m", ago="1h"),
    )
    left = EVERYWHERE.increase(known("pushlane_unknown_format_total"), over="10m")
    return (
        Alert(
            "PushlaneDiskFull",
            binary(grouped("min", free, *INSTALLATION, "dir"), "<", _DISK_FREE),
            "5m",
            Severity.CRITICAL,
            "the volume of {{ $labels.dir }} has {{ $value | humanizePercentage }} left",
            f"Under {_DISK_FREE:.0%} of one of its volumes. A full one takes nothing more, and "
            "whatever writes there waits or fails.",
            "disk-full",
        ),
        Alert(
            "PushlaneVersionSkew",
            binary(lasting, "or", binary(left, ">", 0)),
            "10m",
            Severity.WARNING,
            "processes of several versions run side by side",
            "For more than an hour, which no rolling upgrade needs; or an older one meets messages "
            "that it does not understand, and leaves them to a newer one.",
            "version-skew",
        ),
    )


def _of_receipts() -> tuple[Alert, ...]:
    lag_s = EVERYWHERE.highest(known("pushlane_receipts_lag_seconds"))
    behind_s = EVERYWHERE.highest(known("pushlane_receipts_behind_seconds"))
    lost = known("pushlane_receipts_lost_total")
    return (
        Alert(
            "PushlaneReceiptsLag",
            binary(lag_s, ">", _RECEIPTS_LATE_S),
            "10m",
            Severity.WARNING,
            "reports are {{ $value | humanizeDuration }} behind",
            "Receipts are not stored as fast as they are made. Nothing is lost before the log's "
            "retention ends.",
            "receipts-lag",
        ),
        Alert(
            "PushlaneReceiptsBehind",
            binary(behind_s, ">", 0),
            "1m",
            Severity.WARNING,
            "the log of receipts has taken none for {{ $value | humanizeDuration }}",
            "Deliveries go on, and receipts wait in the memory of dispatchers. When that is full "
            "the oldest are lost; a kill loses all that wait.",
            "receipts-behind",
        ),
        Alert(
            "PushlaneReceiptsLost",
            binary(EVERYWHERE.increase(lost, over="10m"), ">", 0),
            "0m",
            Severity.WARNING,
            "{{ $value | humanize }} receipts were lost within 10 minutes",
            "Their log was away for too long. Reports lack them; the counts of tasks do not.",
            "receipts-behind",
        ),
    )


def _of_the_pipeline() -> tuple[Alert, ...]:
    return (
        Alert(
            "PushlaneRulesDoNotRun",
            _idle("pushlane_rules_looked_at_seconds"),
            "5m",
            Severity.WARNING,
            "nobody has looked at the rules lately",
            f"Runs that are due do not start: no process has looked for {_IDLE_S // 60} minutes, "
            "or none is there where there was one in the last hour. A run that was missed is made "
            "up for, as its rule says (catch_up).",
            "rules-do-not-run",
        ),
        Alert(
            "PushlaneAlertsDoNotRun",
            _idle("pushlane_alerts_looked_at_seconds"),
            "5m",
            Severity.WARNING,
            "nobody has looked at the alerts of reports lately",
            f"They tell nobody anything: no process has looked for {_IDLE_S // 60} minutes, or "
            "none is there where there was one in the last hour.",
            "alerts-do-not-run",
        ),
    )


def _idle(looked_at: str) -> Expression:
    """Tell where the last look was too long ago, by a process that is there or is not any more."""
    metric = known(looked_at)
    old = binary(seconds_since(EVERYWHERE.highest(metric)), ">", _IDLE_S)
    return binary(old, "or", _gone(metric))
