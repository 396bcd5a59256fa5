"""What the leader knows of all processes together: how much is left, how fast it goes, whose it is.

Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LevelAtSink = tuple[str, str]
AppAtSink = tuple[str, str]
TaskAtSink = tuple[str, str, str]
"""A task's id, its level, and its sink."""


@dataclass(frozen=True, kw_only=True)
class LeaderFigures:
    """The figures at one time. Shares are from 0 to 1, times in seconds, rates in pushes a second.

    Those of tasks and apps are of the ten largest backlogs.
    """

    target_s: float
    backlog: Mapping[LevelAtSink, int] = field(default_factory=dict)
    oldest_age_s: Mapping[LevelAtSink, float] = field(default_factory=dict)
    rate_per_s: Mapping[LevelAtSink, float] = field(default_factory=dict)
    entitled: Mapping[LevelAtSink, float] = field(default_factory=dict)
    observed: Mapping[LevelAtSink, float] = field(default_factory=dict)
    drain_s: Mapping[str, float] = field(default_factory=dict)
    drain_backlog: Mapping[str, int] = field(default_factory=dict)
    drain_per_s: Mapping[str, float] = field(default_factory=dict)
    task_backlog: Mapping[TaskAtSink, int] = field(default_factory=dict)
    app_backlog: Mapping[AppAtSink, int] = field(default_factory=dict)
    app_rate_per_s: Mapping[AppAtSink, float] = field(default_factory=dict)
    app_entitled: Mapping[AppAtSink, float] = field(default_factory=dict)
    app_observed: Mapping[AppAtSink, float] = field(default_factory=dict)
