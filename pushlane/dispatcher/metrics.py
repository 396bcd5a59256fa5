"""The metrics of a dispatcher: of each line, of the process, and of all processes together.

Those of a line have the label `sink`. Those of all processes together are shown only by the
dispatcher that leads, and name the tasks and apps with the ten largest backlogs alone. No label
names a recipient or a push: all have the values that are listed here, a bounded number of reasons,
or sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.registry import Collector

from pushlane.backends.contact import BROKER, REGISTRY, Contact
from pushlane.backends.guard_ports import ClaimResult
from pushlane.backends.process_metrics import Folders, process_collector
from pushlane.core.push import Kind
from pushlane.core.task import now_ms
from pushlane.dispatcher.breaker import BreakerState, Restraint
from pushlane.dispatcher.leader.backlogs import LeaderFigures
from pushlane.dispatcher.stats import (
    CAPPED,
    DUPLICATE,
    DUPLICATE_KEY,
    SUPERSEDED,
    SUPPRESSED,
    ReceiptLoss,
)
from pushlane.dispatcher.tracing.traces import Tracing
from pushlane.model.limits import KINDS
from pushlane.model.waits import Cause
from pushlane.util.metrics import LEVELS, Exporter, Labels, MetricCollector, MetricMaker, ReadMetric

if TYPE_CHECKING:
    from pushlane.dispatcher.leader.janitor import Janitor
    from pushlane.dispatcher.line import Line

_LEVEL_SINK: Labels = {"level": LEVELS, "sink": ()}
_APP_SINK: Labels = {"app": (), "sink": ()}
_SINK: Labels = {"sink": ()}

_of_leader: MetricMaker[LeaderFigures] = MetricMaker(Exporter.LEADER)

# fmt: off
LEADER_METRICS: tuple[ReadMetric[LeaderFigures], ...] = (
    _of_leader.gauge("backlog", "pushes",
        "Pushes not finished yet, also paused and later ones; for an open task an estimate of "
        "those on its lane", lambda figures: figures.backlog, _LEVEL_SINK),
    _of_leader.gauge("oldest_age_seconds", "seconds",
        "Age of the oldest task with pushes that may go now, 0 if none; for an open task at most "
        "backlog divided by rate",
        lambda figures: figures.oldest_age_s, _LEVEL_SINK),
    _of_leader.gauge("unsent_oldest_age_seconds", "seconds",
        "The same for the oldest task with unfinished pushes, also those held by a resting sink, "
        "a pause, a limit or quiet hours; 0 before its start",
        lambda figures: figures.unsent_oldest_age_s, _LEVEL_SINK),
    _of_leader.gauge("waiting_backlog", "pushes",
        "Of the backlog, pushes that wait for their time: retries, own starts, quiet hours",
        lambda figures: figures.waiting_backlog, _LEVEL_SINK),
    _of_leader.gauge("rate", "pushes/s", "Pushes sent to the sink, over the last 60 s",
        lambda figures: figures.rate_per_s, _LEVEL_SINK),
    _of_leader.gauge("entitled_share", "0 to 1",
        "Fair share of the sink that a level has now; 0 without pushes that may go",
        lambda figures: figures.entitled, _LEVEL_SINK),
    _of_leader.gauge("observed_share", "0 to 1",
        "Share of the pushes sent to the sink that a level had, over the last 60 s",
        lambda figures: figures.observed, _LEVEL_SINK),
    _of_leader.gauge("drain_seconds", "seconds",
        "Time until all pushes that may go now are sent, at the present rate",
        lambda figures: figures.drain_s, _SINK),
    _of_leader.gauge("drain_target_seconds", "seconds",
        "The setting drain_target_s: an autoscaler's target for drain_seconds",
        lambda figures: figures.target_s),
    _of_leader.gauge("drain_backlog", "pushes",
        "Pushes that more processes would send sooner, which drain_seconds counts",
        lambda figures: figures.drain_backlog, _SINK),
    _of_leader.gauge("drain_rate", "pushes/s",
        "The rate by which drain_seconds counts, 0 if none is known",
        lambda figures: figures.drain_per_s, _SINK),
    _of_leader.gauge("task_backlog", "pushes",
        "Pushes not finished yet of the ten tasks with the most",
        lambda figures: figures.task_backlog, {"task": (), "level": LEVELS, "sink": ()}),
    _of_leader.gauge("app_backlog", "pushes",
        "Pushes not finished yet of the ten apps with the most",
        lambda figures: figures.app_backlog, _APP_SINK),
    _of_leader.gauge("app_rate", "pushes/s",
        "Pushes sent to the sink of these apps, over the last 60 s",
        lambda figures: figures.app_rate_per_s, _APP_SINK),
    _of_leader.gauge("app_entitled_share", "0 to 1",
        "Fair share of the sink that each of these apps has now",
        lambda figures: figures.app_entitled, _APP_SINK),
    _of_leader.gauge("app_observed_share", "0 to 1",
        "Share of the pushes sent to the sink that each of these apps had, over the last 60 s",
        lambda figures: figures.app_observed, _APP_SINK),
)
# fmt: on
"""All metrics of the leader, in the order in which they are shown."""


_LEVEL: Labels = {"level": LEVELS}
_REASON: Labels = {"reason": ()}
_SCOPE: Labels = {"scope": KINDS}

_of_line: MetricMaker[Line] = MetricMaker(Exporter.DISPATCHER, own={"sink": ()})


def _restraint(line: Line) -> Restraint | None:
    return line.outage.restraint(now_ms())


def _states(line: Line) -> dict[str, float]:
    restraint = _restraint(line)
    now = restraint.state if restraint else BreakerState.CLOSED
    return {each: each is now for each in BreakerState}


def _since_s(line: Line) -> float:
    restraint = _restraint(line)
    return restraint.since_ms / 1000 if restraint else 0.0


def _wait_s(line: Line) -> dict[tuple[str, str], float]:
    return {
        (cause.value, level.value): spent_ms / 1000
        for (cause, level), spent_ms in line.stats.waits_ms.items()
    }


def _refuses_us(line: Line) -> float:
    restraint = _restraint(line)
    return restraint is not None and restraint.refuses_us


# fmt: off
LINE_METRICS: tuple[ReadMetric[Line], ...] = (
    _of_line.counter("picked_total", "pushes", "Pushes sent to the sink",
        lambda line: line.stats.picked, _LEVEL),
    _of_line.counter("outcomes_total", "pushes", "Outcomes of pushes",
        lambda line: line.stats.outcomes, {**_LEVEL, "outcome": tuple(map(str, Kind))}),
    _of_line.counter("retries_total", "pushes",
        "Retried pushes, by the sink's answer: `processor` for a function of yours, `other` "
        "after the first 20 answers", lambda line: line.stats.retries, _REASON),
    _of_line.counter("dead_total", "pushes",
        "Dead pushes, by the last answer of the sink, as in retries",
        lambda line: line.stats.dead, _REASON),
    _of_line.counter("forwarded_total", "pushes", "Pushes moved to a lane of their own",
        lambda line: line.stats.forwarded),
    _of_line.counter("malformed_total", "messages", "Messages on lanes that were malformed",
        lambda line: line.stats.malformed),
    _of_line.counter("unknown_format_total", "messages",
        "Messages left to processes of a newer version", lambda line: line.stats.unknown_format),
    _of_line.counter("in_doubt_total", "pushes",
        "Pushes put aside for some seconds, as the registry had lost their task and did not know "
        "that it was forgotten", lambda line: line.stats.in_doubt),
    _of_line.counter("deferred_total", "pushes", "Pushes sent to wait for their time",
        lambda line: line.stats.deferred),
    _of_line.counter("repeats_dropped_total", "messages",
        "Messages whose push had ended, or waited on another lane",
        lambda line: line.stats.repeats),
    _of_line.counter("out_of_order_total", "pushes",
        "Pushes of ordered tasks that waited too long for another",
        lambda line: line.stats.out_of_order),
    _of_line.counter("dropped_total", "pushes",
        "Pushes dropped because their recipient does not need or must not get them",
        lambda line: line.stats.dropped,
        {"reason": (DUPLICATE, DUPLICATE_KEY, SUPERSEDED, SUPPRESSED, CAPPED)}),
    _of_line.counter("dead_addresses_total", "addresses",
        "Addresses that were recorded as dead, by what the sink said",
        lambda line: line.stats.dead_addresses, _REASON),
    _of_line.counter("limited_total", "waits", "How often a push had to wait for a limit",
        lambda line: line.stats.limited, _SCOPE),
    _of_line.counter("receipts_total", "receipts", "Receipts that are durable",
        lambda line: line.stats.receipts_written),
    _of_line.counter("receipts_left_out_total", "receipts",
        "Outcomes that were settled without a receipt, since none could be made of the push",
        lambda line: line.stats.receipts_left_out),
    _of_line.counter("receipts_lost_total", "receipts",
        "Outcomes that were settled and have no receipt, since their log was away for too long",
        lambda line: line.stats.receipts_lost, {"reason": tuple(map(str, ReceiptLoss))}),
    _of_line.counter("claims_total", "claims", "Claims of pushes, by result",
        lambda line: line.stats.claims, {"result": tuple(map(str, ClaimResult))}),
    _of_line.counter("ledger_degraded_total", "calls",
        "Claims, confirmations and releases that could not be recorded",
        lambda line: line.stats.degraded),
    _of_line.counter("sink_probes_total", "pushes", "Pushes that tried a resting sink",
        lambda line: line.stats.probes),
    _of_line.counter("wait_seconds_total", "seconds",
        "Wait of finished pushes by cause, from submit to the last attempt; docs/why.md explains "
        "the causes", _wait_s,
        {"cause": tuple(map(str, Cause)), **_LEVEL}),
    _of_line.counter("spared_total", "pushes", "Failures that cost no attempt",
        lambda line: line.stats.spared),
    _of_line.histogram("waited_seconds",
        "First attempts: from when a push could first go (its submit; or the start and the quiet "
        "hours that it was given) to the sink's answer", lambda line: line.stats.waited, _LEVEL),
    _of_line.histogram("delivery_seconds", "One call of the sink",
        lambda line: line.stats.delivery),
    _of_line.histogram("limit_wait_seconds",
        "How long a lane, or a task of a shared lane, waited for a limit",
        lambda line: line.stats.limit_waits, _SCOPE),
    _of_line.histogram("decode_seconds", "Decoding the pushes of one message",
        lambda line: line.stats.decode),
    _of_line.histogram("receipts_append_seconds", "One append to the log of receipts",
        lambda line: line.stats.receipts),
    _of_line.gauge("in_flight", "pushes", "Pushes in flight",
        lambda line: line.slots.in_flight),
    _of_line.gauge("slots", "pushes", "Pushes that may hold a slot now",
        lambda line: line.slots.usable),
    _of_line.gauge("unsettled", "pushes", "Outcomes not durable yet",
        lambda line: line.flusher.unsettled),
    _of_line.gauge("receipts_waiting", "receipts", "Receipts that are not in their log yet",
        lambda line: line.receipts.queue.waiting),
    _of_line.gauge("receipts_waiting_bytes", "bytes", "Bytes of receipts that are not in their log",
        lambda line: line.receipts.queue.bytes),
    _of_line.gauge("receipts_behind_seconds", "seconds",
        "How long outcomes have been settled ahead of their receipts, 0 if they are not",
        lambda line: line.receipts.queue.behind_s()),
    _of_line.gauge("parked", "pushes", "Pushes that wait for another of their key",
        lambda line: line.key_order.parked),
    _of_line.gauge("lanes_open", "lanes", "Lanes that this process reads",
        lambda line: len(line.lanes.by_name)),
    _of_line.gauge("at_hand", "pushes", "Prefetched pushes that wait for a slot",
        lambda line: line.at_hand()),
    _of_line.gauge("prefetch_age_seconds", "seconds",
        "Time since the oldest prefetched push was read from its lane",
        lambda line: line.prefetch_age_s()),
    _of_line.gauge("lanes_full", "lanes", "Lanes that rest at later_max",
        lambda line: line.delay_limit.full()),
    _of_line.gauge("refused", "pushes", "Pushes that wait as the sink refused them",
        lambda line: line.outage.waiting),
    _of_line.gauge("limiter_away", "0 or 1", "1 while no limits can be leased",
        lambda line: line.gate.budgets.leasing.is_away),
    _of_line.gauge("weight", "weight", "Weight of a level",
        lambda line: line.scheduler.weights(), _LEVEL),
    _of_line.gauge("sink_state", "0 or 1", "1 for the present state of the sink's breaker",
        _states, {"state": tuple(map(str, BreakerState))}),
    _of_line.gauge("sink_state_since_seconds", "Unix seconds",
        "Time since which the sink rests or gets fewer pushes than there are, 0 if it does neither",
        _since_s),
    _of_line.gauge("sink_refuses_us", "0 or 1",
        "1 while the sink rests because it refuses our credentials", _refuses_us),
)
# fmt: on
"""All metrics of a line, in the order in which they are shown."""


class DispatcherState(NamedTuple):
    """When services last answered a dispatcher, the work that it does if it leads, its traces."""

    contact: Contact
    janitor: Janitor
    tracing: Tracing | None = None


_of_dispatcher: MetricMaker[DispatcherState] = MetricMaker(Exporter.DISPATCHER)

# fmt: off
DISPATCHER_METRICS: tuple[ReadMetric[DispatcherState], ...] = (
    _of_dispatcher.gauge("leader", "0 or 1",
        "1 in the dispatcher that leads: it shows the figures of all together, and tidies up",
        lambda state: state.janitor.leader.leads),
    _of_dispatcher.gauge("housekeeping_waits", "0 or 1",
        "1 in the dispatcher that leads while nothing expires, is dropped or forgotten: its clock "
        "and the store's differ by over a minute, or the clock jumped in the last 10 minutes",
        lambda state: state.janitor.is_waiting),
    _of_dispatcher.gauge("store_clock_ahead_seconds", "seconds",
        "Seconds by which the store's clock is ahead of this machine's, as the leader last saw",
        lambda state: state.janitor.leader.store_clock.apart_s),
    _of_dispatcher.gauge("registry_age_seconds", "seconds",
        "Age of what this process knows of tasks: the time since the registry last reported "
        "changes",
        lambda state: state.contact[REGISTRY].age_s()),
    _of_dispatcher.gauge("registry_up", "0 or 1", "1 while the registry answers",
        lambda state: state.contact[REGISTRY].is_up),
    _of_dispatcher.counter("spans_dropped_total", "spans",
        "Spans that were not exported: the collector was away or slow, and the buffer full",
        lambda state: 0 if state.tracing is None else state.tracing.queue.dropped),
    _of_dispatcher.gauge("broker_up", "0 or 1", "1 while the broker answers",
        lambda state: state.contact[BROKER].is_up),
)
# fmt: on
"""All metrics of a dispatcher as a whole, in the order in which they are shown."""


def collectors(
    state: DispatcherState,
    lines: Sequence[Line],
    figures: Callable[[], LeaderFigures | None],
    folders: Folders,
) -> Iterator[Collector]:
    """Yield what shows all metrics of a dispatcher: its own, its lines', and those of all."""
    sources = [(line, (line.name,)) for line in lines]

    def of_leader() -> list[tuple[LeaderFigures, tuple[()]]]:
        """Return nothing while there are no figures."""
        found = figures()
        return [] if found is None else [(found, ())]

    yield MetricCollector(DISPATCHER_METRICS, lambda: [(state, ())])
    yield MetricCollector(LINE_METRICS, lambda: sources)
    yield MetricCollector(LEADER_METRICS, of_leader)
    yield process_collector(folders)
