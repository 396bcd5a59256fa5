"""Computes when a rule is due, from a cron expression on the clock of a time zone.

A wall time that a change of the clocks skips is due once, at the change; one that comes twice is
due the first time. Where the minute or the hour is a star the expression means real time, and is
due again in the hour that comes twice. (It is not exact where clocks change by half an hour, on
Lord Howe Island: there, use times of day.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from pushlane.core.errors import BadInput
from pushlane.lanes.zones import find_zone

_FIELDS = 5
_HOW = "use five fields: minute hour day month weekday, like '0 9 * * MON' (Mondays at 9)"


@dataclass(frozen=True)
class CronSchedule:
    """A valid cron expression in a time zone; `parse_schedule` makes it and refuses others."""

    cron: str
    zone: str

    def first_after(self, at_ms: int) -> int | None:
        """Return the first due time after this one; None if there is none."""
        return next(self._after(at_ms), None)

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """Yield the due times after the first and up to the second, in order."""
        for due_ms in self._after(after_ms):
            if due_ms > until_ms:
                return
            yield due_ms

    def day(self, at_ms: int) -> str:
        """Return the date that a calendar in the zone shows at this time."""
        return datetime.fromtimestamp(at_ms / 1000, find_zone(self.zone)).date().isoformat()

    def _after(self, at_ms: int) -> Iterator[int]:
        start = datetime.fromtimestamp(at_ms // 1000, find_zone(self.zone))
        last_ms = at_ms
        for due in CronSim(self.cron, start):
            due_ms = int(due.astimezone(UTC).timestamp()) * 1000
            if due_ms > last_ms:  # two wall times can be one instant, and one may be before it
                yield due_ms
                last_ms = due_ms


def parse_schedule(cron: str, zone: str) -> CronSchedule:
    """Make a schedule, and check that it comes due at all.

    Raises:
        BadInput: an expression or a zone that cannot be, or that is never due.
    """
    find_zone(zone)
    if len(cron.split()) != _FIELDS:
        raise BadInput(f"cron {cron!r} has {len(cron.split())} fields; {_HOW}")
    try:
        schedule = CronSchedule(" ".join(cron.split()), zone)
        is_due = schedule.first_after(0) is not None
    except CronSimError as error:
        what = str(error).removeprefix("Bad ")
        raise BadInput(f"cron {cron!r}: its {what} cannot be; {_HOW}") from error
    if not is_due:
        raise BadInput(f"cron {cron!r} never comes; {_HOW}")
    return schedule
