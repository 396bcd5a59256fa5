"""The options of a task, declared once: submit, the producer, the CLI and task specs all use them.

A new option is a field here, a flag in `cli.submit`, and the place where it acts; task specs
have it by themselves. `producers.validate` refuses values that cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pushlane.core.errors import BadInput
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import MAX_ATTEMPTS, MAX_QUOTA, DeliveryMode, Level, OnUnknown, now_ms
from pushlane.model.times import given_start_ms, parse_expiry, parse_retention, parse_start
from pushlane.util.conversion import (
    instance,
    kind_of,
    moment_ms,
    one_of,
    path,
    seconds,
    text,
    texts,
    whole,
    word,
)


def read_payload_file(path: Path) -> dict[str, Any]:
    """Return the payload in a JSON file. Raises BadInput when it is none; says where."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BadInput(f"payload {path} cannot be read: {reason}") from error
    return read_payload(text, f"payload {path}")


def read_payload(text: str, what: str) -> dict[str, Any]:
    """Return the payload in a text of JSON. Raises BadInput as `read_payload_file` does."""
    try:
        found = json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"{what} is not JSON: {place}: {error.msg}") from error
    except RecursionError as error:
        raise BadInput(f"{what} is nested too deeply") from error
    if not isinstance(found, dict):
        raise BadInput(f"{what} is not a JSON object; give one with a block for each sink")
    return found


def _no_number(word: str) -> None:
    raise BadInput(f"a payload holds {word}, which JSON does not have; leave it out")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these members, each of which must be there once."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise BadInput(
                f"a payload has {name[:40]!r} twice in one object; leave one of them out"
            )
        members[name] = value
    return members


LONGEST_RETENTION_S = 366 * 86_400


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of a task, apart from its rows.

    `recipient` names the column of recipients; `title` and `body` are templates. `data` names
    columns that go along in `Push.data`. Rows with the same value in the column `ordered_by` are
    sent one after another. `dedupe` leaves out later rows of a recipient. `collapse` is a template:
    of an app's pushes to a recipient for which it gives the same text, only the newest that waits
    is sent. `attributes` and `trace_id` name columns that go into receipts alone, by which reports
    can tell pushes apart.

    `not_before_ms` is when the task starts, 0 for now; an `expires_at_ms` of 0 means never. The
    columns of start and expiry are for single pushes. In the hours `quiet` (like 22:00-08:00)
    recipients are left alone, by the clock of `zone_column`, else of `zone`, else UTC. The lane is
    kept for `retention_s` after the task's end, the settings' own time unless given; a low task
    that is given one has a lane of its own. `max_attempts` is the settings' own unless given.

    `delivery` is what is promised of each push (docs/guarantees.md), and `on_unknown` what becomes
    of a `once` push of which nobody can tell whether it arrived: it is sent again unless given.
    `bad_rows` says whether a row that cannot be used stops the submit or is skipped.

    `sink` names where pushes go: to the first, and what cannot be delivered there to the next.
    `address` names columns of where they go there: `COLUMN`, or `SINK=COLUMN` for one sink.
    `payload` has by sink what is sent there as it is, with templates in it (`producers.payloads`);
    the file that a submit is given is read first.

    `stop_if_dead` is the share of dead pushes that pauses the task, like `5%`, or `off`. Unless
    given it is half of the first 1,000 of a task with a total, and off for one that stays open.
    Pushes without title, body, data and payload are refused unless it is `silent`, and the name of
    a column in doubled braces unless it has `literal_braces`: `{{name}}` is then the text {name}.

    Each field also takes other values with just one meaning: `"3"` for 3, `HIGH` for high, a list
    for a tuple, `fcm,sms` for sinks. A time may be a datetime with a zone, a timedelta from now on,
    or a text as on the command line. A duration may be a timedelta, or a text like `2h`; a path may
    be a text. Raises BadInput for a value that cannot be; names its field and what is allowed.
    """

    # The key of a fan-out hashes the fields in this order, so it stays as it is.
    level: Level
    recipient: str = "recipient"
    title: str = ""
    body: str = ""
    data: tuple[str, ...] = ()
    ordered_by: str = ""
    dedupe: Literal["", "recipient"] = ""
    collapse: str = ""
    attributes: tuple[str, ...] = ()
    trace_id: str = ""
    quota: int = 1
    name: str = ""
    key: str = ""
    app: str = "default"
    not_before_ms: int = 0
    expires_at_ms: int = 0
    not_before_column: str = ""
    expires_column: str = ""
    quiet: str = ""
    zone: str = ""
    zone_column: str = ""
    retention_s: float | None = None
    max_attempts: int | None = None
    delivery: DeliveryMode = DeliveryMode.AT_LEAST_ONCE
    on_unknown: OnUnknown | None = None
    bad_rows: Literal["stop", "skip"] = "stop"
    sink: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    payload: Mapping[str, Any] | Path | None = None
    stop_if_dead: str = ""
    silent: bool = False
    literal_braces: bool = False

    def __post_init__(self) -> None:
        for name, converted in _CONVERSIONS.items():
            object.__setattr__(self, name, converted(name, getattr(self, name)))

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks as its task keeps them: none when it goes to the sink `default` alone."""
        return () if self.sink == (DEFAULT_SINK,) else self.sink

    @property
    def chain(self) -> tuple[str, ...]:
        """The sinks in the order in which its pushes try them."""
        return self.sinks or (DEFAULT_SINK,)


def sink_names(text: str) -> tuple[str, ...]:
    """Return the sinks in a text like `fcm,sms`."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


def _sinks(what: str, value: Any) -> tuple[str, ...]:
    return sink_names(text(what, value)) if isinstance(value, str) else texts(what, value)


def _payload(what: str, value: Any) -> Mapping[str, Any] | Path | None:
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        raise BadInput(f"{what} is JSON as a text; give a mapping, as json.loads makes one")
    if isinstance(value, str | PathLike):
        return path(what, value)
    raise BadInput(f"{what} is {kind_of(value)}; give a mapping by sink, or the path of a file")


def _unless_none(convert: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda what, value: None if value is None else convert(what, value)


_TEXTS = "recipient title body ordered_by collapse trace_id name key app stop_if_dead"
_TIME_TEXTS = "not_before_column expires_column quiet zone zone_column"
_CONVERSIONS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys((*_TEXTS.split(), *_TIME_TEXTS.split()), text),
    **dict.fromkeys(("data", "attributes", "address"), texts),
    "level": partial(word, kind=Level),
    "dedupe": partial(one_of, known=("", "recipient")),
    "quota": partial(whole, low=1, high=MAX_QUOTA),
    "not_before_ms": lambda what, value: given_start_ms(what, value, now_ms()),
    "expires_at_ms": lambda what, value: moment_ms(what, value, now_ms()),
    "retention_s": _unless_none(partial(seconds, low=0, high=LONGEST_RETENTION_S)),
    "max_attempts": _unless_none(partial(whole, low=1, high=MAX_ATTEMPTS)),
    "delivery": partial(word, kind=DeliveryMode),
    "on_unknown": _unless_none(partial(word, kind=OnUnknown)),
    "bad_rows": partial(one_of, known=("stop", "skip")),
    **dict.fromkeys(("silent", "literal_braces"), partial(instance, kind=bool)),
    "sink": _sinks,
    "payload": _payload,
}


LATER = ("sink", "address", "payload", "stop_if_dead", "silent")
"""The options that came after keys of fan-outs were first hashed: unless given they do not count,
so that a fan-out which an older version has begun is known by its key.
"""

CHECKS_ALONE = ("literal_braces",)
"""The options that refuse or allow, and never change what is sent: they count in no key."""


_WRITTEN_AS: dict[str, dict[str, tuple[Any, Any]]] = {
    "attributes": {"attribute": (tuple[str, ...], ())},
    "not_before_ms": {"not_before": (str, ""), "delay": (str, "")},
    "expires_at_ms": {"expires": (str, "")},
    "retention_s": {"retention": (str, "")},
    "payload": {"payload": (str | dict[str, Any], "")},
}
"""The options that people write in another form, by field: names, types and defaults of that."""


def written_options() -> dict[str, tuple[Any, Any]]:
    """Return the options as people write them, by name: type and default, `...` for none."""
    kinds = get_type_hints(TaskOptions)
    written: dict[str, tuple[Any, Any]] = {}
    for field in fields(TaskOptions):
        default = ... if field.default is MISSING else field.default
        written |= _WRITTEN_AS.get(field.name, {field.name: (kinds[field.name], default)})
    return written


def read_options(written: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the fields of options as people write them. Raises BadInput for one that cannot be."""
    given = dict(written)
    start = parse_start(given.pop("not_before"), given.pop("delay"), now_ms)
    expires, retention = given.pop("expires"), given.pop("retention")
    payload = given.pop("payload") or None
    return {
        "attributes": tuple(given.pop("attribute")),
        "not_before_ms": start,
        "expires_at_ms": parse_expiry(expires, now_ms) if expires else 0,
        "retention_s": parse_retention(retention) if retention else None,
        "payload": read_payload_file(Path(payload)) if isinstance(payload, str) else payload,
        **given,
    }
