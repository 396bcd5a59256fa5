"""An alert rule says which figure of which receipts is watched, and which values are alarming."""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.model.documents import as_json
from pushlane.pipeline.reports.query import Condition, Dimension, parse_by, parse_where
from pushlane.util.texts import did_you_mean, require_http_url

_WHEN = re.compile(r"([<>])\s*(\d+(?:\.\d+)?)\s*(%|x)?")
_LONGEST_WINDOW_S = 86_400


class Metric(StrEnum):
    """A figure that can be watched, computed from the receipts in a window of time."""

    FAILURE_RATE = "failure_rate"
    RETRY_RATE = "retry_rate"
    DEAD = "dead"
    EXPIRED = "expired"
    DROPPED = "dropped"
    RATE = "rate"
    P99_WAIT_MS = "p99_wait_ms"
    P99_DELIVERY_MS = "p99_delivery_ms"
    SHARE_ERROR = "share_error"
    LAG_S = "lag_s"


class Threshold(msgspec.Struct, frozen=True):
    """A limit that a value must not be over, or not under.

    With `is_change`, the limit is a factor: it is multiplied with the value of the window before.
    """

    is_over: bool
    limit: float
    is_change: bool = False

    @staticmethod
    def parse(text: str) -> Threshold:
        """Read a text like `> 0.05`, `> 5%`, `< 100` or `> 2x`; raises BadInput for another."""
        found = _WHEN.fullmatch(text.strip())
        if not found:
            raise BadInput(f"when {text!r} is not of a form like '> 0.05', '> 5%', '< 100', '> 2x'")
        sign, number, unit = found.groups()
        limit = float(number) / 100 if unit == "%" else float(number)
        return Threshold(sign == ">", limit, unit == "x")

    def is_crossed(self, value: float, before: float | None) -> bool:
        """Return True if the value is alarming; a change from nothing never is."""
        if self.is_change and not before:
            return False
        limit = self.limit * before if self.is_change and before else self.limit
        return value > limit if self.is_over else value < limit

    def __str__(self) -> str:
        return f"{'>' if self.is_over else '<'} {self.limit:g}{'x' if self.is_change else ''}"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """A validated rule; `by` and `where` are texts as the `report` command takes them.

    `for_s` is how long the threshold must be crossed before the alert fires. Groups with fewer than
    `at_least` receipts in the window are ignored. While an alert fires, a reminder is sent every
    `remind_s`, or never if that is 0.
    """

    name: str
    metric: Metric
    when: Threshold
    url: str
    by: str = ""
    where: tuple[str, ...] = ()
    window_s: int = 300
    for_s: int = 0
    at_least: int = 1
    remind_s: int = 0

    def __post_init__(self) -> None:
        require_http_url(self.url, "the alert's URL is not one like https://example.com/alerts")
        if not 60 <= self.window_s <= _LONGEST_WINDOW_S:
            raise BadInput(f"window of {self.window_s} s: use one from 1m to 1d")
        if any(each.step_ms for each in self.dimensions):
            raise BadInput(
                f"by {self.by!r}: an alert cannot be grouped by time; set its window instead"
            )
        self._require_dimensions()

    def _require_dimensions(self) -> None:
        if self.metric is Metric.LAG_S and (self.dimensions or self.conditions):
            raise BadInput("lag_s measures the whole pipeline: leave out --by and --where")
        if self.metric is not Metric.SHARE_ERROR:
            return
        if self.dimensions not in ((Dimension("level"),), (Dimension("task"),)):
            raise BadInput("share_error compares levels or tasks: give --by level or --by task")
        if any(each.dimension != Dimension("sink") for each in self.conditions):
            raise BadInput(
                "share_error can be filtered by sink only, since all that is sent competes"
            )

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return parse_by(self.by)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return parse_where(self.where)

    @property
    def host(self) -> str:
        """Return the webhook's host; the rest of its URL may be a secret."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def encode(self) -> bytes:
        """Raises Unstorable if it could not be read back."""
        return as_json(f"alert {self.name!r}", self, AlertRule)


def decode_rule(name: str, body: bytes) -> AlertRule:
    """Decode a stored rule; raises UnknownFormat if only a newer version understands it."""
    try:
        return msgspec.json.decode(body, type=AlertRule)
    except (msgspec.ValidationError, BadInput) as error:
        raise UnknownFormat(0, f"alert {name!r}") from error


def parse_metric(word: str) -> Metric:
    """Return the metric of this name; raises BadInput if there is none."""
    known = [str(metric) for metric in Metric]
    if word not in known:
        hint = did_you_mean(word, known)
        raise BadInput(f"unknown metric {word!r}; use {', '.join(known)}{hint}")
    return Metric(word)
