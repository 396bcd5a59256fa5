"""The metrics of a dispatcher as a whole: whether it leads, and which services it reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pushlane.lanes.metric import Exporter, MetricMaker, ReadMetric


@dataclass(frozen=True)
class DispatcherState:
    """The state of a dispatcher, read when somebody asks."""

    leads: Callable[[], bool]
    registry_age_s: Callable[[], float]
    registry_up: Callable[[], bool]
    broker_up: Callable[[], bool]


_make: MetricMaker[DispatcherState] = MetricMaker(Exporter.DISPATCHER)

DISPATCHER_METRICS: tuple[ReadMetric[DispatcherState], ...] = (
    _make.gauge(
        "leader",
        "0 or 1",
        "1 in the dispatcher that leads: it shows the figures of all together, and tidies up",
        lambda state: state.leads(),
    ),
    _make.gauge(
        "registry_age_seconds",
        "seconds",
        "Since when the registry has not told of its changes: tasks are known as of then",
        lambda state: state.registry_age_s(),
    ),
    _make.gauge(
        "registry_up", "0 or 1", "1 while the registry answers", lambda state: state.registry_up()
    ),
    _make.gauge(
        "broker_up", "0 or 1", "1 while the broker answers", lambda state: state.broker_up()
    ),
)
"""All metrics of a dispatcher as a whole, in the order in which they are shown."""
