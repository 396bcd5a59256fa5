"""PromQL that can name only metrics and labels that there are.

An expression is put together from definitions of metrics, never from names: a wrong label, or a sum
of what one process says for all, raises where it is written. It knows the labels of its result, so
that legends and messages are checked too, and two results are matched on what they have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pushlane.util.metrics import Exporter, MetricDefinition, MetricKind

INSTALLATION = ("namespace", "job")
"""The labels that tell one pushlane from another in a Prometheus that scrapes several."""

TARGET = (*INSTALLATION, "instance", "pod", "worker")
"""Labels that each series may have beside its own: where it was scraped."""

Matching = str | tuple[str, ...]
Operator = Literal["+", "-", "*", "/", ">", "<", ">=", "==", "and", "or", "unless"]
_OF_SETS = ("and", "or", "unless")


@dataclass(frozen=True)
class Expression:
    """PromQL, with the labels that its result has and the metrics that it reads."""

    text: str
    labels: tuple[str, ...]
    metrics: tuple[MetricDefinition, ...]
    is_binary: bool = False

    @property
    def operand(self) -> str:
        """The text as a part of another."""
        return f"({self.text})" if self.is_binary else self.text


@dataclass(frozen=True)
class Selection:
    """The series that are asked for, and the labels that every result keeps.

    `chosen` has labels whose values are given elsewhere, as by a dashboard's variables.
    """

    chosen: Mapping[str, str]
    kept: tuple[str, ...]

    def total(self, metric: MetricDefinition, *by: str, **where: Matching) -> Expression:
        """Return the sum over all processes."""
        _refuse_of_leader(metric)
        return self._aggregated("sum", metric, by, where)

    def highest(self, metric: MetricDefinition, *by: str, **where: Matching) -> Expression:
        """Return the largest over all processes."""
        return self._aggregated("max", metric, by, where)

    def lowest(self, metric: MetricDefinition, *by: str, **where: Matching) -> Expression:
        """Return the smallest over all processes."""
        return self._aggregated("min", metric, by, where)

    def count(self, metric: MetricDefinition, *by: str, **where: Matching) -> Expression:
        """Return how many series there are."""
        return self._aggregated("count", metric, by, where)

    def once(self, metric: MetricDefinition, **where: Matching) -> Expression:
        """Return what the leader alone says, with all labels of the metric.

        While the lead goes from one process to another, two may say it for a moment.
        """
        return self._aggregated("max", metric, tuple(metric.labels), where)

    def rate(self, metric: MetricDefinition, *by: str, over: str, **where: Matching) -> Expression:
        """Return what a counter grows by in a second, of all processes."""
        return self._grown("rate", metric, by, over, where)

    def increase(
        self, metric: MetricDefinition, *by: str, over: str, **where: Matching
    ) -> Expression:
        """Return what a counter has grown by, of all processes."""
        return self._grown("increase", metric, by, over, where)

    def buckets(self, metric: MetricDefinition, *by: str, over: str) -> Expression:
        """Return how fast the buckets of a histogram grow, of all processes."""
        _require(metric, MetricKind.HISTOGRAM)
        series = self._series(metric, {}, "_bucket")
        return self._summed(f"rate({series}[{over}])", metric, (*by, "le"))

    def quantile(
        self, quantile: float, metric: MetricDefinition, *by: str, over: str
    ) -> Expression:
        """Return the value that this part of what a histogram counted is not over."""
        return _quantile(quantile, self.buckets(metric, *by, over=over))

    def recorded_quantile(
        self, quantile: float, recorded: MetricDefinition, *by: str
    ) -> Expression:
        """Return the same of buckets that a rule has recorded."""
        return _quantile(quantile, self.total(recorded, *by, "le"))

    def _grown(
        self,
        how: str,
        metric: MetricDefinition,
        by: tuple[str, ...],
        over: str,
        where: Mapping[str, Matching],
    ) -> Expression:
        _require(metric, MetricKind.COUNTER)
        return self._summed(f"{how}({self._series(metric, where)}[{over}])", metric, by)

    def _aggregated(
        self, how: str, metric: MetricDefinition, by: tuple[str, ...], where: Mapping[str, Matching]
    ) -> Expression:
        _require(metric, MetricKind.GAUGE)
        return self._summed(self._series(metric, where), metric, by, how)

    def _summed(
        self, text: str, metric: MetricDefinition, by: tuple[str, ...], how: str = "sum"
    ) -> Expression:
        labels = (*self.kept, *by)
        _refuse_unknown(metric, labels)
        return Expression(_grouped(how, labels, text), labels, (metric,))

    def _series(
        self, metric: MetricDefinition, where: Mapping[str, Matching], suffix: str = ""
    ) -> str:
        _refuse_unknown(metric, tuple(where))
        for label, value in where.items():
            _refuse_value(metric, label, value)
        has = (*TARGET, *metric.labels)
        chosen = {label: f'=~"{value}"' for label, value in self.chosen.items() if label in has}
        asked = {label: _matcher(value) for label, value in where.items()}
        matchers = ", ".join(label + match for label, match in {**chosen, **asked}.items())
        name = metric.name + suffix
        return f"{name}{{{matchers}}}" if matchers else name


def binary(left: Expression, operator: Operator, right: Expression | float) -> Expression:
    """Return two results put together, matched on the labels that both have.

    Raises:
        ValueError: each has a label that the other has not.
    """
    if not isinstance(right, Expression):
        text = f"{left.operand} {operator} {right:.10g}"
        return Expression(text, left.labels, left.metrics, is_binary=True)
    is_of_sets = operator in _OF_SETS
    many = right if not is_of_sets and len(right.labels) > len(left.labels) else left
    matched = _matched(left, right, may_repeat=not is_of_sets)
    text = f"{left.operand}\n{operator}{matched} {right.operand}"
    metrics = tuple({one.name: one for one in (*left.metrics, *right.metrics)}.values())
    return Expression(text, many.labels, metrics, is_binary=True)


def grouped(how: Literal["sum", "min", "max", "count"], inner: Expression, *by: str) -> Expression:
    """Return a result with fewer labels.

    Raises:
        ValueError: it has not all of these.
    """
    if wrong := set(by) - set(inner.labels):
        raise ValueError(f"{inner.text} has no {sorted(wrong)}")
    return Expression(_grouped(how, by, inner.text), by, inner.metrics)


def top(count: int, inner: Expression) -> Expression:
    """Return the largest of a result."""
    return Expression(f"topk({count}, {inner.text})", inner.labels, inner.metrics)


def over_time(
    how: Literal["min", "max"], inner: Expression, window: str, ago: str = ""
) -> Expression:
    """Return the least or the largest value within a time, which ended `ago`."""
    offset = f" offset {ago}" if ago else ""
    text = f"{how}_over_time(({inner.text})[{window}:]{offset})"
    return Expression(text, inner.labels, inner.metrics)


def absent(metric: MetricDefinition) -> Expression:
    """Return 1 when nobody says this."""
    return Expression(f"absent({metric.name})", (), (metric,))


def seconds_since(inner: Expression) -> Expression:
    """Return how long ago a Unix time was."""
    return Expression(f"time() - {inner.operand}", inner.labels, inner.metrics, is_binary=True)


def or_zero(inner: Expression) -> Expression:
    """Return a result, and 0 when there is none."""
    text = f"{inner.operand} or vector(0)"
    return Expression(text, inner.labels, inner.metrics, is_binary=True)


def _quantile(quantile: float, buckets: Expression) -> Expression:
    labels = tuple(label for label in buckets.labels if label != "le")
    return Expression(f"histogram_quantile({quantile:g}, {buckets.text})", labels, buckets.metrics)


def _grouped(how: str, labels: tuple[str, ...], text: str) -> str:
    return f"{how} by ({', '.join(labels)}) ({text})" if labels else f"{how}({text})"


def _matched(left: Expression, right: Expression, *, may_repeat: bool) -> str:
    ours, theirs = set(left.labels), set(right.labels)
    if ours == theirs:
        return ""
    if not (ours > theirs or theirs > ours):
        raise ValueError(f"neither of {left.text} and {right.text} has all labels of the other")
    common = [label for label in left.labels if label in theirs]
    side = ("group_left" if ours > theirs else "group_right") + " ()" if may_repeat else ""
    return f" on ({', '.join(common)}) {side}".rstrip()


def _matcher(value: Matching) -> str:
    return f'="{value}"' if isinstance(value, str) else f'=~"{"|".join(value)}"'


def _require(metric: MetricDefinition, kind: MetricKind) -> None:
    if metric.kind is not kind:
        raise ValueError(f"{metric.name} is a {metric.kind}, no {kind}")


def _refuse_of_leader(metric: MetricDefinition) -> None:
    if metric.exporter is Exporter.LEADER:
        raise ValueError(f"{metric.name} is of all processes already: ask for it once")


def _refuse_unknown(metric: MetricDefinition, labels: tuple[str, ...]) -> None:
    known = (*TARGET, *metric.labels)
    if metric.kind is MetricKind.HISTOGRAM:
        known = (*known, "le")
    if wrong := [label for label in labels if label not in known]:
        raise ValueError(f"{metric.name} has no label {wrong[0]!r}; it has {', '.join(known)}")


def _refuse_value(metric: MetricDefinition, label: str, value: Matching) -> None:
    possible = metric.labels.get(label, ())
    asked = (value,) if isinstance(value, str) else value
    if possible and (wrong := set(asked) - set(possible)):
        raise ValueError(f"{label} of {metric.name} is never {sorted(wrong)}")
