"""The metrics of a line, each sample with the label `sink`, which every dispatcher shows.

They name no recipient, push or task: their labels have the values that are listed here, and a
bounded number of reasons and sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pushlane.core.push import Kind, Scope
from pushlane.dispatcher.breaker import BreakerState, Restraint
from pushlane.dispatcher.stats import CAPPED, DUPLICATE, SUPERSEDED, SUPPRESSED
from pushlane.lanes.ports import ClaimResult
from pushlane.model.limits import KINDS
from pushlane.util.metrics import LEVELS, Exporter, Labels, MetricMaker, ReadMetric

if TYPE_CHECKING:
    from pushlane.dispatcher.line import Line

_LEVEL: Labels = {"level": LEVELS}
_REASON: Labels = {"reason": ()}
_SCOPE: Labels = {"scope": KINDS}

_make: MetricMaker[Line] = MetricMaker(Exporter.DISPATCHER, own={"sink": ()})


def _restraint(line: Line) -> Restraint | None:
    """Return why the sink gets fewer pushes than there are, if it does."""
    return next((one for one in line.resting() if one.scope is Scope.SINK), None)


def _states(line: Line) -> dict[str, float]:
    restraint = _restraint(line)
    now = restraint.state if restraint else BreakerState.CLOSED
    return {each: each is now for each in BreakerState}


def _since_s(line: Line) -> float:
    restraint = _restraint(line)
    return restraint.since_ms / 1000 if restraint else 0.0


def _refuses_us(line: Line) -> float:
    restraint = _restraint(line)
    return restraint is not None and restraint.refuses_us


LINE_METRICS: tuple[ReadMetric[Line], ...] = (
    _make.counter(
        "picked_total", "pushes", "Pushes sent to the sink", lambda line: line.stats.picked, _LEVEL
    ),
    _make.counter(
        "outcomes_total",
        "pushes",
        "What became of pushes",
        lambda line: line.stats.outcomes,
        {**_LEVEL, "outcome": tuple(map(str, Kind))},
    ),
    _make.counter(
        "retries_total",
        "pushes",
        "Pushes that are tried again, by what the sink said: `processor` for a function of yours, "
        "`other` behind the first 20",
        lambda line: line.stats.retries,
        _REASON,
    ),
    _make.counter(
        "dead_total",
        "pushes",
        "Dead pushes, by what the sink said last, as in retries",
        lambda line: line.stats.dead,
        _REASON,
    ),
    _make.counter(
        "forwarded_total",
        "pushes",
        "Pushes moved to a lane of their own",
        lambda line: line.stats.forwarded,
    ),
    _make.counter(
        "malformed_total",
        "messages",
        "Messages on lanes that were no push",
        lambda line: line.stats.malformed,
    ),
    _make.counter(
        "unknown_format_total",
        "messages",
        "Messages left to processes of a newer version",
        lambda line: line.stats.unknown_format,
    ),
    _make.counter(
        "in_doubt_total",
        "pushes",
        "Pushes put aside for some seconds, as the registry did not have their task and nothing "
        "said that it was forgotten",
        lambda line: line.stats.in_doubt,
    ),
    _make.counter(
        "deferred_total",
        "pushes",
        "Pushes sent to wait for their time",
        lambda line: line.stats.deferred,
    ),
    _make.counter(
        "repeats_dropped_total",
        "messages",
        "Messages whose push had ended, or waited on another lane",
        lambda line: line.stats.repeats,
    ),
    _make.counter(
        "out_of_order_total",
        "pushes",
        "Pushes of ordered tasks that waited too long for another",
        lambda line: line.stats.out_of_order,
    ),
    _make.counter(
        "dropped_total",
        "pushes",
        "Pushes that their recipient did not need or must not get",
        lambda line: line.stats.dropped,
        {"reason": (DUPLICATE, SUPERSEDED, SUPPRESSED, CAPPED)},
    ),
    _make.counter(
        "dead_addresses_total",
        "addresses",
        "Addresses that were recorded as dead, by what the sink said",
        lambda line: line.stats.dead_addresses,
        _REASON,
    ),
    _make.counter(
        "limited_total",
        "waits",
        "How often a push had to wait for a limit",
        lambda line: line.stats.limited,
        _SCOPE,
    ),
    _make.counter(
        "receipts_total",
        "receipts",
        "Receipts that are durable",
        lambda line: line.stats.receipts_written,
    ),
    _make.counter(
        "receipts_left_out_total",
        "receipts",
        "Outcomes that were settled without a receipt, since none could be made of the push",
        lambda line: line.stats.receipts_left_out,
    ),
    _make.counter(
        "claims_total",
        "claims",
        "What the ledger said to claims of pushes",
        lambda line: line.stats.claims,
        {"result": tuple(map(str, ClaimResult))},
    ),
    _make.counter(
        "ledger_degraded_total",
        "calls",
        "Claims, confirmations and releases done without the ledger",
        lambda line: line.stats.degraded,
    ),
    _make.counter(
        "sink_probes_total",
        "pushes",
        "Pushes that tried a resting sink",
        lambda line: line.stats.probes,
    ),
    _make.counter(
        "spared_total",
        "pushes",
        "Failures that cost no attempt",
        lambda line: line.stats.spared,
    ),
    _make.histogram(
        "waited_seconds",
        "First attempts: from when a push could first go (its submit; or the start and the quiet "
        "hours that it was given) to the sink's answer",
        lambda line: line.stats.waited,
        _LEVEL,
    ),
    _make.histogram("delivery_seconds", "One call of the sink", lambda line: line.stats.delivery),
    _make.histogram(
        "limit_wait_seconds",
        "How long a lane, or a task of a shared lane, waited for a limit",
        lambda line: line.stats.limit_waits,
        _SCOPE,
    ),
    _make.histogram(
        "decode_seconds",
        "Reading the pushes of one bundle",
        lambda line: line.stats.decode,
    ),
    _make.histogram(
        "receipts_append_seconds",
        "One append to the log of receipts",
        lambda line: line.stats.receipts,
    ),
    _make.gauge(
        "in_flight", "pushes", "Pushes that hold a slot", lambda line: line.slots.in_flight
    ),
    _make.gauge(
        "slots", "pushes", "Pushes that may hold a slot now", lambda line: line.slots.usable
    ),
    _make.gauge(
        "unsettled", "pushes", "Outcomes not durable yet", lambda line: line.flusher.unsettled
    ),
    _make.gauge(
        "receipts_waiting",
        "receipts",
        "Receipts that are being written to their log",
        lambda line: line.receipts.waiting,
    ),
    _make.gauge(
        "parked",
        "pushes",
        "Pushes that wait for another of their key",
        lambda line: line.key_order.parked,
    ),
    _make.gauge(
        "lanes_open", "lanes", "Lanes that this process reads", lambda line: len(line.lanes.by_name)
    ),
    _make.gauge(
        "lanes_full",
        "lanes",
        "Lanes that rest at later_max",
        lambda line: line.delay_limit.full(),
    ),
    _make.gauge(
        "refused",
        "pushes",
        "Pushes that wait as the sink refused them",
        lambda line: line.outage.waiting,
    ),
    _make.gauge(
        "limiter_away",
        "0 or 1",
        "1 while no limits can be leased",
        lambda line: line.gate.budgets.leasing.is_away,
    ),
    _make.gauge(
        "weight", "weight", "Weight of a level", lambda line: line.scheduler.weights(), _LEVEL
    ),
    _make.gauge(
        "sink_state",
        "0 or 1",
        "1 for how the sink's breaker stands",
        _states,
        {"state": tuple(map(str, BreakerState))},
    ),
    _make.gauge(
        "sink_state_since_seconds",
        "Unix seconds",
        "Since when the sink rests or gets fewer pushes than there are, else 0",
        _since_s,
    ),
    _make.gauge(
        "sink_refuses_us",
        "0 or 1",
        "1 while the sink rests as it refuses our credentials",
        _refuses_us,
    ),
)
"""All metrics of a line, in the order in which they are shown."""
