"""The demo's figures, computed from what the receivers logged and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pushlane.cli.demo.arrivals import ArrivalLine
from pushlane.cli.demo.files import BACKLOG, LATE_TASK
from pushlane.cli.demo.scenario import QUOTA_TASK, Played
from pushlane.lanes.task import Level, Weights


@dataclass(frozen=True)
class DemoReport:
    """Shares are fractions of 1; times are seconds after the late task was handed in.

    `queue_per_level_is_at_least` says that the rival was stopped before its late task came first
    through: its figures are then the time that was waited.
    """

    share: dict[str, float]
    entitled: dict[str, float]
    late_first_push_s: float
    late_completion_s: float
    queue_per_level_first_push_s: float
    queue_per_level_completion_s: float
    queue_per_level_is_at_least: bool
    quota_share_before: float
    quota_share_after: float
    rate_per_s: float
    submitted: int
    lost: int
    duplicates: int
    plot: str | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def report(played: Played, plot: str | None) -> DemoReport:
    webhook, rest, rival = played.webhook, played.rest, played.rival
    assert webhook is not None
    assert rest is not None
    assert rival is not None
    measured = [arrival for arrival in webhook.arrivals if arrival.at_s <= played.stopped_at]
    late = played.tasks[LATE_TASK.name].id
    rival_first = rival.first(played.rival_late_id)
    is_through = rival.counts[played.rival_late_id] >= LATE_TASK.pushes
    rival_last = rival.last(played.rival_late_id) if is_through else played.rival_stopped_at
    before, after = _quota_shares(played, measured)
    lost, duplicates = _account(played, [*webhook.arrivals, *rest.arrivals])
    return DemoReport(
        share=_shares(measured),
        entitled=entitled(),
        late_first_push_s=_after(played.late_at, webhook.first(late)),
        late_completion_s=_after(played.late_at, webhook.last(late)),
        queue_per_level_first_push_s=_after(
            played.rival_late_at, rival_first or played.rival_stopped_at
        ),
        queue_per_level_completion_s=_after(played.rival_late_at, rival_last),
        queue_per_level_is_at_least=not is_through,
        quota_share_before=before,
        quota_share_after=after,
        rate_per_s=round(len(measured) / (played.stopped_at - played.started_at), 1),
        submitted=sum(task.total or 0 for task in played.tasks.values()),
        lost=lost,
        duplicates=duplicates,
        plot=plot,
    )


def entitled() -> dict[str, float]:
    weights = Weights().by_level()
    return {level.value: weight / sum(weights.values()) for level, weight in weights.items()}


def _shares(arrivals: Sequence[ArrivalLine]) -> dict[str, float]:
    counts = Counter(arrival.level for arrival in arrivals)
    return {level.value: round(counts[level] / len(arrivals), 4) for level in Level}


def _quota_shares(played: Played, arrivals: Sequence[ArrivalLine]) -> tuple[float, float]:
    """Return the part of the medium level that the task with the new quota had, before
    and after.
    """
    mediums = {played.tasks[c.name].id for c in BACKLOG if c.level is Level.MEDIUM}
    before: Counter[bool] = Counter()
    after: Counter[bool] = Counter()
    for arrival in arrivals:
        if arrival.task in mediums:
            side = before if arrival.at_s < played.quota_at else after
            side[arrival.task == played.tasks[QUOTA_TASK].id] += 1
    return _part(before), _part(after)


def _part(counts: Counter[bool]) -> float:
    return round(counts[True] / max(1, counts.total()), 4)


def _account(played: Played, arrivals: Sequence[ArrivalLine]) -> tuple[int, int]:
    """Return how many pushes never arrived anywhere, and how many arrivals were repeats."""
    distinct = {(arrival.task, arrival.seq) for arrival in arrivals}
    submitted = sum(task.total or 0 for task in played.tasks.values())
    return submitted - len(distinct), len(arrivals) - len(distinct)


def _after(start: float, end: float | None) -> float:
    return round((end or start) - start, 4)
