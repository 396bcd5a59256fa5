"""What a dispatcher counts, in plain integers on the hot path, and how Prometheus reads it.

Nothing here names a recipient or a push; labels are levels, outcomes and sinks, so their number is
bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pushlane.dispatcher.breaker import BreakerState, Restraint
from pushlane.lanes.limits import KINDS
from pushlane.lanes.ports import ClaimResult
from pushlane.lanes.push import Kind, Scope
from pushlane.lanes.task import Level

BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    600,
    3600,
)


DUPLICATE = "duplicate"
SUPERSEDED = "superseded"
SUPPRESSED = "suppressed"
CAPPED = "capped"


class Buckets:
    """A histogram of seconds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += times
        self.sum_s += seconds * times

    def cumulative(self) -> list[tuple[str, float]]:
        total = 0
        rows = []
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows


class Stats:
    """Counts of one dispatcher since it started.

    `held_s` adds up for how long each of the `released` pushes has held its slot.
    """

    def __init__(self) -> None:
        self.picked = dict.fromkeys(Level, 0)
        self.outcomes = {(level, kind): 0 for level in Level for kind in Kind}
        self.waited = {level: Buckets() for level in Level}
        self.delivery = Buckets()
        self.held_s = 0.0
        self.released = 0
        self.forwarded = 0
        self.malformed = 0
        self.unknown_format = 0
        self.deferred = 0
        self.repeats = 0
        self.claims = dict.fromkeys(ClaimResult, 0)
        self.degraded = 0
        self.receipts = Buckets()
        self.receipts_written = 0
        self.out_of_order = 0
        self.dropped = dict.fromkeys((DUPLICATE, SUPERSEDED, SUPPRESSED, CAPPED), 0)
        self.dead_addresses: dict[str, int] = {}
        self.probes = 0
        self.spared = 0
        self.limited = dict.fromkeys(KINDS, 0)


class Gauges:
    """What is read when somebody asks: functions, so that nothing is kept up to date in between."""

    def __init__(
        self,
        in_flight: Callable[[], int],
        slots: Callable[[], int],
        unsettled: Callable[[], int],
        receipts_waiting: Callable[[], int],
        parked: Callable[[], int],
        lanes_open: Callable[[], int],
        lanes_full: Callable[[], int],
        refused: Callable[[], int],
        limiter_away: Callable[[], int],
        resting: Callable[[], Sequence[Restraint]],
        backlog: Callable[[], dict[Level, int]],
        weights: Callable[[], dict[Level, int]],
    ) -> None:
        self.in_flight = in_flight
        self.slots = slots
        self.unsettled = unsettled
        self.receipts_waiting = receipts_waiting
        self.parked = parked
        self.lanes_open = lanes_open
        self.lanes_full = lanes_full
        self.refused = refused
        self.limiter_away = limiter_away
        self.resting = resting
        self.backlog = backlog
        self.weights = weights


class StatsCollector(Collector):
    """Shows what the lines of a process count to a Prometheus registry, each under its sink."""

    def __init__(self, lines: Sequence[LineMetrics]) -> None:
        self._lines = lines

    def collect(self) -> Iterable[Metric]:
        for of_lines in zip(*(line.collect() for line in self._lines), strict=True):
            family = of_lines[0]
            family.samples = [sample for one in of_lines for sample in one.samples]
            yield family


class LineMetrics:
    """The metrics of one line: `Stats` and `Gauges`, each sample with the label `sink`."""

    def __init__(self, stats: Stats, gauges: Gauges, sink: str) -> None:
        self._stats = stats
        self._gauges = gauges
        self._sink = sink

    def collect(self) -> Iterable[Metric]:
        """Yield each family, the same ones in the same order for every line."""
        for family in self._families():
            family.samples = [
                sample._replace(labels={**sample.labels, "sink": self._sink})
                for sample in family.samples
            ]
            yield family

    def _families(self) -> Iterable[Metric]:
        yield from self._counters()
        yield from self._ledger_counters()
        yield from self._histograms()
        yield from self._gauge_metrics()
        yield from self._sink_metrics()

    def _counters(self) -> Iterable[Metric]:
        stats = self._stats
        picked = CounterMetricFamily("pushlane_picked", "Pushes sent to the sink", labels=["level"])
        for level, count in stats.picked.items():
            picked.add_metric([level], count)
        outcomes = CounterMetricFamily(
            "pushlane_outcomes", "What became of pushes", labels=["level", "outcome"]
        )
        for (level, kind), count in stats.outcomes.items():
            outcomes.add_metric([level, kind], count)
        forwarded = CounterMetricFamily("pushlane_forwarded", "Pushes moved to a lane of their own")
        forwarded.add_metric([], stats.forwarded)
        malformed = CounterMetricFamily("pushlane_malformed", "Messages on lanes that were no push")
        malformed.add_metric([], stats.malformed)
        unknown_format = CounterMetricFamily(
            "pushlane_unknown_format", "Messages left to processes of a newer version"
        )
        unknown_format.add_metric([], stats.unknown_format)
        deferred = CounterMetricFamily("pushlane_deferred", "Pushes sent to wait for their time")
        deferred.add_metric([], stats.deferred)
        repeats = CounterMetricFamily(
            "pushlane_repeats_dropped", "Messages whose push had ended, or waited on another lane"
        )
        repeats.add_metric([], stats.repeats)
        out_of_order = CounterMetricFamily(
            "pushlane_out_of_order", "Pushes of ordered tasks that waited too long for another"
        )
        out_of_order.add_metric([], stats.out_of_order)
        dropped = _counted(
            "pushlane_dropped",
            "Pushes that their recipient did not need or must not get",
            "reason",
            stats.dropped,
        )
        dead_addresses = _counted(
            "pushlane_dead_addresses",
            "Addresses that were recorded as dead, by what the sink said",
            "reason",
            stats.dead_addresses,
        )
        limited = _counted(
            "pushlane_limited", "How often a push had to wait for a limit", "scope", stats.limited
        )
        receipts = CounterMetricFamily("pushlane_receipts", "Receipts that are durable")
        receipts.add_metric([], stats.receipts_written)
        moved = (forwarded, malformed, unknown_format, deferred)
        yield from (picked, outcomes, *moved, repeats)
        yield from (out_of_order, dropped, dead_addresses, limited, receipts)

    def _ledger_counters(self) -> Iterable[Metric]:
        claims = CounterMetricFamily(
            "pushlane_claims", "What the ledger said to claims of pushes", labels=["result"]
        )
        for result, count in self._stats.claims.items():
            claims.add_metric([result], count)
        degraded = CounterMetricFamily(
            "pushlane_ledger_degraded", "Claims, confirmations and releases done without the ledger"
        )
        degraded.add_metric([], self._stats.degraded)
        return claims, degraded

    def _histograms(self) -> Iterable[Metric]:
        waited = HistogramMetricFamily(
            "pushlane_waited_seconds", "From submit to the sink, first attempts", labels=["level"]
        )
        for level, buckets in self._stats.waited.items():
            waited.add_metric([level], buckets.cumulative(), buckets.sum_s)
        delivery = HistogramMetricFamily(
            "pushlane_delivery_seconds", "One call of the sink", labels=[]
        )
        delivery.add_metric([], self._stats.delivery.cumulative(), self._stats.delivery.sum_s)
        receipts = HistogramMetricFamily(
            "pushlane_receipts_append_seconds", "One append to the log of receipts", labels=[]
        )
        receipts.add_metric([], self._stats.receipts.cumulative(), self._stats.receipts.sum_s)
        return waited, delivery, receipts

    def _gauge_metrics(self) -> Iterable[Metric]:
        gauges = self._gauges
        for name, text, value in (
            ("pushlane_in_flight", "Pushes that hold a slot", gauges.in_flight()),
            ("pushlane_slots", "Pushes that may hold a slot now", gauges.slots()),
            ("pushlane_unsettled", "Outcomes not durable yet", gauges.unsettled()),
            (
                "pushlane_receipts_waiting",
                "Receipts that are being written to their log",
                gauges.receipts_waiting(),
            ),
            ("pushlane_parked", "Pushes that wait for another of their key", gauges.parked()),
            ("pushlane_lanes_open", "Lanes that this process reads", gauges.lanes_open()),
            ("pushlane_lanes_full", "Lanes that rest at later_max", gauges.lanes_full()),
            ("pushlane_refused", "Pushes that wait as the sink refused them", gauges.refused()),
            ("pushlane_limiter_away", "1 while no limits can be leased", gauges.limiter_away()),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        for name, text, by_level in (
            ("pushlane_backlog", "Pushes of sealed tasks not finished yet", gauges.backlog()),
            ("pushlane_weight", "Weight of a level", gauges.weights()),
            ("pushlane_share", "Share of all pushes sent since the start", self._shares()),
        ):
            family = GaugeMetricFamily(name, text, labels=["level"])
            for level, number in by_level.items():
                family.add_metric([level], number)
            yield family

    def _sink_metrics(self) -> Iterable[Metric]:
        state = GaugeMetricFamily(
            "pushlane_sink_state", "1 for how the sink's breaker stands", labels=["state"]
        )
        since = GaugeMetricFamily(
            "pushlane_sink_state_since_seconds",
            "Unix time since when the sink rests or gets fewer pushes than there are, else 0",
            labels=[],
        )
        resting = [one for one in self._gauges.resting() if one.scope is Scope.SINK]
        now = resting[0].state if resting else BreakerState.CLOSED
        for each in BreakerState:
            state.add_metric([each], each is now)
        since.add_metric([], resting[0].since_ms / 1000 if resting else 0)
        yield state
        yield since
        for name, text, count in (
            ("pushlane_sink_probes", "Pushes that tried a resting sink", self._stats.probes),
            ("pushlane_spared", "Failures that cost no attempt", self._stats.spared),
        ):
            family = CounterMetricFamily(name, text, labels=[])
            family.add_metric([], count)
            yield family

    def _shares(self) -> dict[Level, float]:
        total = sum(self._stats.picked.values()) or 1
        return {level: count / total for level, count in self._stats.picked.items()}


def _counted(name: str, about: str, label: str, counts: Mapping[str, int]) -> Metric:
    """Return a counter with a value for each label; a thread reads it while the counts may grow."""
    family = CounterMetricFamily(name, about, labels=[label])
    for one, count in tuple(counts.items()):
        family.add_metric([one], count)
    return family
