"""A rule says which recipients get which pushes when, and how many at most.

It is frozen and validated once, and holds its task by value: a task spec file that changes later
changes no rule.

A rule is due by a cron expression on the clock of a time zone. A wall time that a change of the
clocks skips is due once, at the change; one that comes twice is due the first time. Where the
minute or the hour is a star the expression means real time, and is due again in the hour that comes
twice. (It is not exact where clocks change by half an hour, as on Lord Howe Island: use times of
day there.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Any, Literal

from cronsim import CronSim, CronSimError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.model.documents import checked
from pushlane.model.times import find_zone
from pushlane.util.errors import Unstorable
from pushlane.util.texts import MASK, did_you_mean, masked

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
        """Return the due times after the first and up to the second, in order."""
        return takewhile(lambda due_ms: due_ms <= until_ms, self._after(after_ms))

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
    """Make a schedule; raises BadInput for one that cannot be, or that is never due."""
    find_zone(zone)
    fields = cron.split()
    if len(fields) != 5:
        raise BadInput(f"cron {cron!r} has {len(fields)} fields; {_HOW}")
    try:
        schedule = CronSchedule(" ".join(fields), zone)
        is_due = schedule.first_after(0) is not None
    except CronSimError as error:
        what = str(error).removeprefix("Bad ")
        raise BadInput(f"cron {cron!r}: its {what} is not valid; {_HOW}") from error
    if not is_due:
        raise BadInput(f"cron {cron!r} never occurs; {_HOW}")
    return schedule


CatchUp = Literal["latest", "all", "skip"]
MOST_BYTES = 24 * 1024
LONGEST_WINDOW_S = 31 * 86_400
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET = re.compile(r"pass|secret|token|credential|key", re.IGNORECASE)
_OURS = ("name", "since_ms", "revision", "silent", "literal_braces")


class Rule(BaseModel):
    """An audience, a task and a schedule.

    `task` holds the options of a task spec. A budget of None sets no bound; `budget_day` counts the
    pushes of a day in `zone`. `catch_up` says which runs are made up for that nobody was there to
    make, of those not longer ago than `catch_up_s`. Due times up to `since_ms` do not count: the
    rule was not there, was paused, or had another schedule. `revision` grows with every change.
    `silent` and `literal_braces` are the options of its task, kept here since older versions read
    the rule too; None in a rule that one of them has saved, which may do both.
    """

    model_config = ConfigDict(frozen=True, extra="allow")  # what a newer version has added is kept

    name: str
    audience: str = Field(min_length=1)
    format: str = ""
    options: dict[str, str] = {}
    where: str = ""
    exclude: tuple[str, ...] = ()
    task: dict[str, Any]
    cron: str
    zone: str = "UTC"
    budget_run: int | None = Field(None, ge=1)
    budget_day: int | None = Field(None, ge=1)
    catch_up: CatchUp = "latest"
    catch_up_s: float = Field(86_400.0, ge=0, le=LONGEST_WINDOW_S)
    paused: bool = False
    silent: bool | None = None
    literal_braces: bool | None = None
    since_ms: int = 0
    revision: int = 1

    @property
    def schedule(self) -> CronSchedule:
        return CronSchedule(self.cron, self.zone)

    @property
    def app(self) -> str:
        """The app of its tasks."""
        return str(self.task.get("app") or "default")

    def changed(self, **fields: Any) -> Rule:
        """Return the rule after a change of fields that are valid already."""
        return self.model_copy(update={**fields, "revision": self.revision + 1})

    def replacing(self, old: Rule) -> Rule:
        """Return this rule in place of an older one, whose pause and start of schedule stay."""
        is_same = (self.cron, self.zone) == (old.cron, old.zone)
        fields = {"paused": self.paused or old.paused, "revision": old.revision + 1}
        return self.model_copy(update={**fields, **({"since_ms": old.since_ms} if is_same else {})})

    def held(self, paused: bool, now_ms: int) -> Rule:
        """Return the rule paused, or due again from now on."""
        if paused == self.paused:
            return self
        return self.changed(paused=paused, since_ms=self.since_ms if paused else now_ms)

    def shown(self) -> dict[str, Any]:
        """Return the fields as people may see them, without passwords and the like."""
        shown = {
            name: MASK if _SECRET.search(name) else masked(value)
            for name, value in self.options.items()
        }
        return {
            **self.model_dump(mode="json", include=set(Rule.model_fields)),
            "options": shown,
            "audience": masked(self.audience),
            "exclude": [masked(source) for source in self.exclude],
        }

    def encode(self) -> bytes:
        """Raises Unstorable if it could not be read back."""
        read = partial(decode_rule, self.name)
        return checked(f"rule {self.name!r}", lambda: self.model_dump_json().encode(), read)


def decode_rule(name: str, body: bytes) -> Rule:
    """Decode a stored rule; raises UnknownFormat if only a newer version understands it."""
    try:
        return Rule.model_validate_json(body)
    except ValidationError as error:
        raise UnknownFormat(0, f"rule {name!r}") from error


def make_rule(name: str, fields: Mapping[str, Any], now_ms: int) -> Rule:
    """Make a new rule that is due from now on.

    Raises BadInput for a name, field, schedule or size that cannot be, and says what it may be.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"rule name {name[:80]!r} cannot be used; take up to 64 letters, digits, dots, dashes "
            "and underscores, like weekly-news"
        )
    known = [field for field in Rule.model_fields if field not in _OURS]
    if other := next((field for field in fields if field not in known), None):
        hint = f"{did_you_mean(other, known)}; known: {', '.join(known)}"
        raise BadInput(f"rule {name!r}: there is no field {other!r}{hint}")
    try:
        rule = Rule(name=name, since_ms=now_ms, **fields)
    except ValidationError as error:
        raise _bad_field(name, error) from error
    schedule = parse_schedule(rule.cron, rule.zone)
    try:
        size = len(rule.encode())
    except (Unstorable, RecursionError) as error:
        raise BadInput(
            f"rule {name!r} cannot be saved: its task holds something that is nested too deeply, "
            "or is not JSON"
        ) from error
    if size > MOST_BYTES:
        raise BadInput(
            f"rule {name!r} has {size:,} bytes, and may have {MOST_BYTES:,}; shorten its SQL or "
            "its texts"
        )
    return rule.model_copy(update={"cron": schedule.cron})


def _bad_field(name: str, error: ValidationError) -> BadInput:
    """Return an error that names the field without its value, which may be a password."""
    found = error.errors(include_input=False)[0]
    field = str(found["loc"][0])
    if found["type"] == "missing":
        return BadInput(f"rule {name!r} has no {field!r}; add it")
    return BadInput(f"rule {name!r}: {field!r}: {found['msg'][:1].lower()}{found['msg'][1:]}")
