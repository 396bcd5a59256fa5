"""Defines metrics, each once: its name, labels, unit and meaning, and how its value is read.

A collector is made of such definitions, and so are docs/metrics.md, the dashboard and the alert
rules. Values are counted elsewhere, in plain numbers; they are read when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pushlane.core.task import Level
from pushlane.util.buckets import Buckets

SourceT = TypeVar("SourceT")

LEVELS = tuple(map(str, Level))


class MetricKind(StrEnum):
    """A kind of metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Exporter(StrEnum):
    """The process that shows a metric."""

    DISPATCHER = "dispatcher"
    LEADER = "leader"
    """The dispatcher that leads: a sum over all processes would count its figures twice."""

    EVERY = "every process"
    PRODUCER = "producer"
    PIPELINE = "pipeline"
    RULES = "rules"
    ALERTS = "alerts"
    INGEST = "ingest"


Labels = Mapping[str, Sequence[str]]
Amount = float | Buckets
Reading = Amount | Mapping[Any, Amount]
"""One value; or one for each value of its label, or for each tuple of values of its labels."""
Read = Callable[[SourceT], Reading]


@dataclass(frozen=True)
class MetricDefinition:
    """A metric. `unit` is one of its values; that of a flag is `0 or 1`.

    `labels` has for each label its values, and none where these are not known before.
    """

    exporter: Exporter
    kind: MetricKind
    name: str
    unit: str
    meaning: str
    labels: Labels = field(default_factory=dict)

    def family(self, samples: Iterable[tuple[Sequence[str], Amount]]) -> Metric:
        """Return the metric as the client shows it. Raises ValueError for labels not its own."""
        made: Any = _FAMILIES[self.kind](self.name, self.meaning, labels=tuple(self.labels))
        for labels, amount in samples:
            if len(labels) != len(self.labels):
                raise ValueError(f"{self.name} has the labels {', '.join(self.labels)}")
            if isinstance(amount, Buckets):
                made.add_metric(labels, amount.cumulative(), amount.sum_s)
            else:
                made.add_metric(labels, amount)
        return cast(Metric, made)


_FAMILIES: Mapping[MetricKind, Callable[..., Metric]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}


@dataclass(frozen=True)
class ReadMetric(Generic[SourceT]):
    """A metric, and how it is read of its source."""

    metric: MetricDefinition
    read: Read[SourceT]


@dataclass(frozen=True)
class MetricMaker(Generic[SourceT]):
    """Defines the metrics of one kind of source, whose names begin alike.

    `own` are the labels that tell sources apart: the last ones of all their metrics.
    """

    exporter: Exporter
    prefix: str = "pushlane_"
    own: Labels = field(default_factory=dict)

    def counter(
        self, name: str, unit: str, meaning: str, read: Read[SourceT], labels: Labels | None = None
    ) -> ReadMetric[SourceT]:
        """Define a count since the process started; its name ends in `_total`."""
        return self._made(MetricKind.COUNTER, name, unit, meaning, read, labels)

    def gauge(
        self, name: str, unit: str, meaning: str, read: Read[SourceT], labels: Labels | None = None
    ) -> ReadMetric[SourceT]:
        """Define a value that goes up and down."""
        return self._made(MetricKind.GAUGE, name, unit, meaning, read, labels)

    def histogram(
        self, name: str, meaning: str, read: Read[SourceT], labels: Labels | None = None
    ) -> ReadMetric[SourceT]:
        """Define a distribution of seconds; its name ends in `_seconds`."""
        return self._made(MetricKind.HISTOGRAM, name, "seconds", meaning, read, labels)

    def _made(
        self,
        kind: MetricKind,
        name: str,
        unit: str,
        meaning: str,
        read: Read[SourceT],
        labels: Labels | None,
    ) -> ReadMetric[SourceT]:
        all_labels = {**(labels or {}), **self.own}
        made = MetricDefinition(self.exporter, kind, self.prefix + name, unit, meaning, all_labels)
        return ReadMetric(made, read)


@dataclass(eq=False)
class MetricCollector(Collector, Generic[SourceT]):
    """Shows metrics to a Prometheus registry, read of each of their sources when it is asked.

    `sources` gives these with their own labels; of none nothing is shown.
    """

    metrics: Sequence[ReadMetric[SourceT]]
    sources: Callable[[], Sequence[tuple[SourceT, Sequence[str]]]]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, with the values of all sources."""
        sources = self.sources()
        for one in self.metrics if sources else ():
            yield one.metric.family(
                ((*labels, *own), amount)
                for source, own in sources
                for labels, amount in _samples(one.read(source))
            )


def _samples(reading: Reading) -> list[tuple[tuple[str, ...], Amount]]:
    """Return labels and amounts; the reading may grow meanwhile, on another thread."""
    if not isinstance(reading, Mapping):
        return [((), reading)]
    return [
        ((labels,) if isinstance(labels, str) else labels, amount)
        for labels, amount in list(reading.items())
    ]
