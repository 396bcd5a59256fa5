"""The metrics of all processes together, which only the dispatcher that leads shows.

Tasks and apps are named for the ten largest backlogs alone, so that there are never more series
than levels and sinks make.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane.dispatcher.leading.figures import LeaderFigures
from pushlane.util.metrics import LEVELS, Exporter, Labels, MetricCollector, MetricMaker, ReadMetric

_LEVEL_SINK: Labels = {"level": LEVELS, "sink": ()}
_APP_SINK: Labels = {"app": (), "sink": ()}
_SINK: Labels = {"sink": ()}

_make: MetricMaker[LeaderFigures] = MetricMaker(Exporter.LEADER)

LEADER_METRICS: tuple[ReadMetric[LeaderFigures], ...] = (
    _make.gauge(
        "backlog",
        "pushes",
        "Pushes not finished yet, whatever holds them: of a task that is not sealed, those on its "
        "lane, about",
        lambda figures: figures.backlog,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "oldest_age_seconds",
        "seconds",
        "Since when the oldest task with pushes that may go now could have begun, else 0; of a "
        "stream no longer than all of its level takes at the present rate",
        lambda figures: figures.oldest_age_s,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "unsent_oldest_age_seconds",
        "seconds",
        "The same of the oldest task with pushes not finished yet, whatever holds them: a sink "
        "that rests, a pause, a limit, quiet hours; 0 before its start",
        lambda figures: figures.unsent_oldest_age_s,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "waiting_backlog",
        "pushes",
        "Of the backlog, pushes that wait for their time: retries, own starts, quiet hours",
        lambda figures: figures.waiting_backlog,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "rate",
        "pushes/s",
        "Pushes sent to the sink, over the last 60 s",
        lambda figures: figures.rate_per_s,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "entitled_share",
        "0 to 1",
        "Part of the sink that a level is entitled to now: 0 without pushes that may go",
        lambda figures: figures.entitled,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "observed_share",
        "0 to 1",
        "Part of the pushes sent to the sink that a level had, over the last 60 s",
        lambda figures: figures.observed,
        _LEVEL_SINK,
    ),
    _make.gauge(
        "drain_seconds",
        "seconds",
        "Until what may go now is sent, at the present rate",
        lambda figures: figures.drain_s,
        _SINK,
    ),
    _make.gauge(
        "drain_target_seconds",
        "seconds",
        "The setting drain_target_s: an autoscaler's target for drain_seconds",
        lambda figures: figures.target_s,
    ),
    _make.gauge(
        "drain_backlog",
        "pushes",
        "Pushes that more processes would send sooner, which drain_seconds counts",
        lambda figures: figures.drain_backlog,
        _SINK,
    ),
    _make.gauge(
        "drain_rate",
        "pushes/s",
        "The rate by which drain_seconds counts, 0 if none is known",
        lambda figures: figures.drain_per_s,
        _SINK,
    ),
    _make.gauge(
        "task_backlog",
        "pushes",
        "Pushes not finished yet of the ten tasks that have most",
        lambda figures: figures.task_backlog,
        {"task": (), "level": LEVELS, "sink": ()},
    ),
    _make.gauge(
        "app_backlog",
        "pushes",
        "Pushes not finished yet of the ten apps that have most",
        lambda figures: figures.app_backlog,
        _APP_SINK,
    ),
    _make.gauge(
        "app_rate",
        "pushes/s",
        "Pushes sent to the sink of these apps, over the last 60 s",
        lambda figures: figures.app_rate_per_s,
        _APP_SINK,
    ),
    _make.gauge(
        "app_entitled_share",
        "0 to 1",
        "Part of the sink that each of these apps is entitled to now",
        lambda figures: figures.app_entitled,
        _APP_SINK,
    ),
    _make.gauge(
        "app_observed_share",
        "0 to 1",
        "Part of the pushes sent to the sink that each of these apps had, over the last 60 s",
        lambda figures: figures.app_observed,
        _APP_SINK,
    ),
)
"""All metrics of the leader, in the order in which they are shown."""


def leader_collector(
    figures: Callable[[], LeaderFigures | None],
) -> MetricCollector[LeaderFigures]:
    """Return what shows these figures, and nothing while there are none."""

    def sources() -> list[tuple[LeaderFigures, tuple[()]]]:
        found = figures()
        return [] if found is None else [(found, ())]

    return MetricCollector(LEADER_METRICS, sources)
