"""The metrics of a dispatcher as a whole: whether it leads, and which services it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.registry import Collector

from pushlane.backends.contact import BROKER, REGISTRY, Contact
from pushlane.backends.process_metrics import Folders, process_collector
from pushlane.dispatcher.leading.figures import LeaderFigures
from pushlane.dispatcher.leading.leader_metrics import leader_collector
from pushlane.dispatcher.metrics import LINE_METRICS
from pushlane.util.metrics import Exporter, MetricCollector, MetricMaker, ReadMetric

if TYPE_CHECKING:
    from pushlane.dispatcher.leader.janitor import Janitor
    from pushlane.dispatcher.line import Line


class DispatcherState(NamedTuple):
    """When services last answered a dispatcher, and the work that it does if it leads."""

    contact: Contact
    janitor: Janitor


_make: MetricMaker[DispatcherState] = MetricMaker(Exporter.DISPATCHER)

DISPATCHER_METRICS: tuple[ReadMetric[DispatcherState], ...] = (
    _make.gauge(
        "leader",
        "0 or 1",
        "1 in the dispatcher that leads: it shows the figures of all together, and tidies up",
        lambda state: state.janitor.leads,
    ),
    _make.gauge(
        "housekeeping_waits",
        "0 or 1",
        "1 in the dispatcher that leads while nothing expires, is dropped or forgotten: its clock "
        "and the store's differ by over a minute, or the clock stepped in the last 10 minutes",
        lambda state: state.janitor.is_waiting,
    ),
    _make.gauge(
        "store_clock_ahead_seconds",
        "seconds",
        "By how much the store's clock is ahead of this machine's, as last heard by who leads",
        lambda state: state.janitor.clock_apart_s,
    ),
    _make.gauge(
        "registry_age_seconds",
        "seconds",
        "Since when the registry has not told of its changes: tasks are known as of then",
        lambda state: state.contact[REGISTRY].age_s(),
    ),
    _make.gauge(
        "registry_up",
        "0 or 1",
        "1 while the registry answers",
        lambda state: state.contact[REGISTRY].is_up,
    ),
    _make.gauge(
        "broker_up",
        "0 or 1",
        "1 while the broker answers",
        lambda state: state.contact[BROKER].is_up,
    ),
)
"""All metrics of a dispatcher as a whole, in the order in which they are shown."""


def collectors(
    state: DispatcherState,
    lines: Sequence[Line],
    figures: Callable[[], LeaderFigures | None],
    folders: Folders,
) -> Iterator[Collector]:
    """Yield what shows all metrics of a dispatcher: its own, its lines', and those of all."""
    sources = [(line, (line.name,)) for line in lines]
    yield MetricCollector(DISPATCHER_METRICS, lambda: [(state, ())])
    yield MetricCollector(LINE_METRICS, lambda: sources)
    yield leader_collector(figures)
    yield process_collector(folders)
