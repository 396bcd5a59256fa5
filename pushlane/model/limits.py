"""Limits: what a task, an app or a sink may take, changeable at runtime.

Each is a small document under its subject, like `app/shop`, that every dispatcher follows. A limit
that is not set is none. A cost is what the sink's settings say that one push costs, 1 unless given.

Frequency caps count a recipient's pushes from an app by day: the calendar day in the push's zone,
else in its task's, else in UTC; pushes of all zones with the same date count together. An app
without a cap of its own has that of `app/*`, each such app by itself: apps that are to share a cap
have to be one app.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.core.task import MAX_QUOTA, Level
from pushlane.core.turns import EVERY_APP
from pushlane.model.documents import DocumentStore, as_json, place_of
from pushlane.model.recipients import NO_CAP, Cap
from pushlane.model.times import zone_or_utc
from pushlane.util.conversion import number, one_of, shown, text, whole
from pushlane.util.errors import DamagedRecord
from pushlane.util.texts import did_you_mean

KINDS = ("task", "app", "sink")
ALL_LEVELS = "all"
"""In `recipient_a_day`: all levels together."""

LEAST_PART = 0.001
"""The least part of the high level that an app may be left with."""

_AMOUNTS = ("rate_per_s", "total_cost", "cost_a_day")
_COUNTS = ("in_flight", "total", "a_day")
KIND = "limit"
"""The kind of document that a limit is."""

_TRIES = 10

RATE_UNIT_S = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "day": 86_400}
_RATE = re.compile(r"([^/]+)/([a-z]+)")


def parse_rate(given: str) -> float:
    """Return how much a second a text like `100/s`, `30/min`, `500/h` or `9/day` is.

    Raises ValueError for what is no rate; its text is the end of a sentence.
    """
    match = _RATE.fullmatch(given.strip())
    unit_s = RATE_UNIT_S.get(match[2]) if match else None
    if match is None or unit_s is None:
        raise ValueError("not a rate; use one like 100/s, 30/min, 500/h or 9/day")
    try:
        return float(match[1]) / unit_s
    except ValueError:
        raise ValueError(
            "not a rate: there is no number before the /; use one like 100/s"
        ) from None


def given_rate(what: str, given: Any) -> float:
    """Return a rate that a program gives: a number a second, or a text like `100/s`.

    Raises BadInput when it is none.
    """
    try:
        rate = parse_rate(given) if isinstance(given, str) and "/" in given else given
    except ValueError as error:
        raise BadInput(f"{what} {shown(given)} is {error}") from None
    return number(what, rate, 0)


class Subject(NamedTuple):
    """Whom a limit is about: a task's id, an app's or a sink's name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @staticmethod
    def parse(given: str) -> Subject:
        """Return the subject in a text like `app/shop`. Raises BadInput when there is none."""
        kind, _, name = given.partition("/")
        if kind not in KINDS or not name:
            raise BadInput(
                f"{given[:60]!r} cannot have a limit; use task/ID, app/NAME or "
                f"sink/NAME{did_you_mean(kind, KINDS)}"
            )
        return Subject(kind, name)


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one subject; None is no limit.

    `rate_per_s` is in cost units, as are `total_cost` and `cost_a_day`; `total` and `a_day` count
    pushes. `in_flight` is how many deliveries may be under way at once, over all processes.
    For an app, `quota` is how many pushes it sends in its turn within a level. `high_part` is the
    part of the high level that it may have. `recipient_a_day` is how many pushes a recipient gets
    from it in a day, by level (`all` for all levels together); 0 is none.
    """

    rate_per_s: float | None = None
    in_flight: int | None = None
    total: int | None = None
    total_cost: float | None = None
    a_day: int | None = None
    cost_a_day: float | None = None
    quota: int | None = None
    high_part: float | None = None
    recipient_a_day: dict[str, int] = {}

    @property
    def is_none(self) -> bool:
        return self == Limit()


Limits = dict[Subject, Limit]
Check = Callable[[Limit], None]
"""Raises where a limit is not as whoever changes it has to have seen it."""


async def read_limits(documents: DocumentStore) -> Limits:
    """Return all limits that are set. Raises DamagedRecord when one of them cannot be read."""
    found = await documents.list(KIND)
    return {Subject.parse(one.name): _decoded(one.name, one.body) for one in found}


class ReadableLimits(NamedTuple):
    """The limits that can be read, and what is wrong with the others, by their names."""

    limits: Limits
    unread: dict[str, UnknownFormat]


async def readable_limits(documents: DocumentStore) -> ReadableLimits:
    """Return all limits that this version understands, and name the others."""
    found = ReadableLimits({}, {})
    for one in await documents.list(KIND):
        try:
            found.limits[Subject.parse(one.name)] = _decoded(one.name, one.body)
        except UnknownFormat as error:
            found.unread[one.name] = error
        except BadInput:  # of a kind of subject to come
            found.unread[one.name] = UnknownFormat(0, f"the limit of {one.name}")
    return found


async def limit_of(documents: DocumentStore, subject: Subject) -> Limit:
    """Return all limits of a subject. Raises DamagedRecord when they cannot be read."""
    found = await documents.get(KIND, str(subject))
    return Limit() if found is None else _decoded(str(subject), found.body)


async def change_limit(
    documents: DocumentStore,
    subject: Subject,
    edit: Callable[[Limit], Limit],
    check: Check | None = None,
) -> Limit:
    """Replace a subject's limit by `edit(limit)`, for every process; return the new one.

    The check is made of the limit that is replaced; both may run again on a newer one.

    Raises:
        BadInput: a limit cannot be so, like one of 0.
        DamagedRecord: the one that is there cannot be read: remove it first.
        TaskConflict: it is being changed elsewhere again and again.
    """
    name = str(subject)
    for _ in range(_TRIES):
        found = await documents.get(KIND, name)
        before = Limit() if found is None else _decoded(name, found.body)
        if check is not None:
            check(before)
        after = _checked(subject, edit(before))
        if after == before:
            return after
        version = found.version if found else None
        if after.is_none:
            if await documents.remove(KIND, name, version):
                return after
            continue
        body = as_json(f"the limit of {name}", after, Limit)
        if await documents.put(KIND, name, body, version) is not None:
            return after
    raise TaskConflict(
        f"the limit of {name} is being changed elsewhere; look at it, then try again"
    )


async def remove_limit(documents: DocumentStore, subject: Subject) -> None:
    """Take all limits of a subject away."""
    await documents.remove(KIND, str(subject))


def _checked(subject: Subject, limit: Limit) -> Limit:
    """Return the limit with each value converted to what is kept. Raises BadInput if one cannot."""
    kept: dict[str, Any] = {}
    for name in (*_AMOUNTS, *_COUNTS):
        if (value := getattr(limit, name)) is not None:
            kept[name] = _converted(subject, name, value)
    if limit.quota is not None:
        kept["quota"] = whole("quota", limit.quota, 1, MAX_QUOTA)
    if limit.high_part is not None:
        kept["high_part"] = number("high_part", limit.high_part, LEAST_PART, 1)
    kept["recipient_a_day"] = _caps(subject, limit.recipient_a_day)
    return replace(limit, **kept)


def _caps(subject: Subject, by_level: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(by_level, Mapping):
        raise BadInput(
            f"recipient_a_day {shown(by_level)} is not a mapping; give numbers by level, like "
            "{'low': 2, 'all': 5}"
        )
    if by_level and subject.kind != "app":
        raise BadInput(f"recipient_a_day limits an app, and {subject} is not one; use app/NAME")
    levels = (*(level.value for level in Level), ALL_LEVELS)
    caps: dict[str, int] = {}
    for given, count in by_level.items():
        level = one_of("level", given, levels)
        caps[level] = whole(f"recipient_a_day {level}", count, 0)  # 0 of a level leaves it unsent
    return caps


def _converted(subject: Subject, name: str, value: Any) -> float:
    if name in _COUNTS:
        converted: float = whole(name, value, 0)
    else:
        converted = given_rate(name, value) if name == "rate_per_s" else number(name, value, 0)
    if converted == 0:
        what = subject.name if subject.kind == "task" else "TASK"
        raise BadInput(
            f"{name} 0 would send nothing of {subject}; to stop a task: pushlane pause {what}; "
            "to remove a limit, give none"
        )
    return converted


def limit_faults(bodies: Iterable[tuple[str, bytes]]) -> Iterator[UnknownFormat]:
    """Yield what is wrong with each limit, by name and body, that cannot be read."""
    for name, body in bodies:
        try:
            _decoded(name, body)
        except UnknownFormat as error:
            yield error


def _decoded(name: str, body: bytes) -> Limit:
    """Return the limit. A newer version may add fields, but none that we know is of another type.

    Raises DamagedRecord when one is, or it is no limit at all.
    """
    try:
        return msgspec.json.decode(body, type=Limit)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        way_out = f"remove it: pushlane limit {quote(name)} --none"
        raise DamagedRecord(f"the limit of {name}", place_of(error), way_out) from error


async def set_app_share(
    documents: DocumentStore,
    app: str,
    *,
    quota: int | str | None = None,
    high_part: float | str | None = None,
    check: Check | None = None,
) -> Limit:
    """Set the quota of an app, its part of the high level, or both; `*` is every app without one.

    What is None stays as it is; the check is as in `change_limit`. Returns all that the app is
    limited to. Raises BadInput for no name or a value out of range, and as `change_limit` does.
    """
    _require_name(app)
    of = f" of app {app!r}"
    if quota is not None:
        quota = whole("quota", quota, 1, MAX_QUOTA, of=of, hint="; to stop a task, pause it")
    if high_part is not None:
        hint = "; give 0.5 for half of what the high level has"
        high_part = number("high part", high_part, LEAST_PART, 1, of=of, hint=hint)
    given = {"quota": quota, "high_part": high_part}
    changes = {name: value for name, value in given.items() if value is not None}
    subject = Subject("app", app)
    return await change_limit(documents, subject, lambda limit: replace(limit, **changes), check)


async def clear_app_share(documents: DocumentStore, app: str, check: Check | None = None) -> Limit:
    """Take the quota of an app and its part away; return the rest. Raises as `set_app_share`."""
    _require_name(app)
    none = {"quota": None, "high_part": None}
    subject = Subject("app", app)
    return await change_limit(documents, subject, lambda limit: replace(limit, **none), check)


async def app_share(documents: DocumentStore, app: str) -> Limit:
    """Return what an app is limited to. Raises BadInput when the app has no name."""
    _require_name(app)
    return await limit_of(documents, Subject("app", app))


def _require_name(app: str) -> None:
    if not text("app", app):
        raise BadInput(f"app is empty; give its name, or {EVERY_APP!r} for every app")


_UNIX_DAY = datetime(1970, 1, 1).toordinal()
_MOST_ZONES = 1_024


class FrequencyCaps:
    """The caps that are set, by app and level."""

    def __init__(self, limits: Limits) -> None:
        self._apps = {
            subject.name: limit.recipient_a_day
            for subject, limit in limits.items()
            if subject.kind == "app" and limit.recipient_a_day
        }
        self._every = self._apps.pop(EVERY_APP, {})

    @property
    def is_none(self) -> bool:
        return not (self._apps or self._every)

    def has(self, app: str) -> bool:
        """Return whether any cap holds for an app."""
        return bool(self._apps.get(app, self._every))

    def of(self, app: str, level: Level) -> Cap | None:
        """Return what holds for an app's pushes of a level; None when nothing does."""
        given = self._apps.get(app, self._every)
        if level not in given and ALL_LEVELS not in given:
            return None
        return Cap(given.get(level, NO_CAP), given.get(ALL_LEVELS, NO_CAP))


class Calendar:
    """Tells the date in a zone, in days since 1970; looks into a zone's rules once a day."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._known: dict[str, tuple[int, int]] = {}

    def day(self, zone: str) -> int:
        """Return today's date in a zone: in UTC for one that this machine does not know."""
        now_ms = self._clock_ms()
        day, ends_ms = self._known.get(zone, (0, 0))
        if now_ms >= ends_ms:
            if len(self._known) >= _MOST_ZONES:
                self._known.clear()
            day, ends_ms = self._known[zone] = _looked_up(zone, now_ms)
        return day


def _looked_up(zone: str, now_ms: int) -> tuple[int, int]:
    """Return the date in a zone, and the Unix time in milliseconds at which it ends."""
    rules = zone_or_utc(zone)
    wall = datetime.fromtimestamp(now_ms / 1000, rules)
    morrow = wall.date() + timedelta(days=1)
    end = datetime(morrow.year, morrow.month, morrow.day, tzinfo=rules)
    return wall.toordinal() - _UNIX_DAY, round(end.timestamp() * 1000)
