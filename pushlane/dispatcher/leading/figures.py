"""What the leader knows of all processes together: how much is left, how fast it goes, whose it is.

Values only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LevelAtSink = tuple[str, str]
AppAtSink = tuple[str, str]
TaskAtSink = tuple[str, str, str]
"""A task's id, its level, and its sink."""


@dataclass(frozen=True, kw_only=True)
class LeaderFigures:
    """The figures at one time. Shares are from 0 to 1, times in seconds, rates in pushes a second.

    Those of tasks and apps are of the ten largest backlogs. Once they are made nobody changes them.
    """

    target_s: float
    backlog: dict[LevelAtSink, int] = field(default_factory=dict)
    oldest_age_s: dict[LevelAtSink, float] = field(default_factory=dict)
    unsent_oldest_age_s: dict[LevelAtSink, float] = field(default_factory=dict)
    waiting_backlog: dict[LevelAtSink, int] = field(default_factory=dict)
    rate_per_s: dict[LevelAtSink, float] = field(default_factory=dict)
    entitled: dict[LevelAtSink, float] = field(default_factory=dict)
    observed: dict[LevelAtSink, float] = field(default_factory=dict)
    drain_s: dict[str, float] = field(default_factory=dict)
    drain_backlog: dict[str, int] = field(default_factory=dict)
    drain_per_s: dict[str, float] = field(default_factory=dict)
    task_backlog: dict[TaskAtSink, int] = field(default_factory=dict)
    app_backlog: dict[AppAtSink, int] = field(default_factory=dict)
    app_rate_per_s: dict[AppAtSink, float] = field(default_factory=dict)
    app_entitled: dict[AppAtSink, float] = field(default_factory=dict)
    app_observed: dict[AppAtSink, float] = field(default_factory=dict)
