"""The options of a task, declared once: submit, the producer, the CLI and task specs all use them.

A new option is a field here, a flag in `cli.task_options`, and the place where it acts; task specs
have it by themselves. `producers.validate` refuses values that cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pushlane.lanes.naming import DEFAULT_SINK
from pushlane.lanes.task import DeliveryMode, Level, OnUnknown
from pushlane.producers.payload_file import read_payload_file
from pushlane.producers.times import parse_expiry, parse_retention, parse_start


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Everything that a task is asked to be, apart from its rows.

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

    Pushes without title, body, data and payload are refused unless it is `silent`, and the name of
    a column in doubled braces unless it has `literal_braces`: `{{name}}` is then the text {name}.
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
    silent: bool = False
    literal_braces: bool = False

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks as its task keeps them: none when it goes to the sink `default` alone."""
        return () if self.sink == (DEFAULT_SINK,) else self.sink

    @property
    def chain(self) -> tuple[str, ...]:
        """The sinks in the order in which its pushes try them."""
        return self.sinks or (DEFAULT_SINK,)


LATER = ("sink", "address", "payload", "silent")
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


def sink_names(text: str) -> tuple[str, ...]:
    """Return the sinks in a text like `fcm,sms`."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


def read_options(written: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the fields of TaskOptions from options as people write them, all of them given.

    Raises:
        BadInput: a time or duration that cannot be read, or has passed, or a file of a payload
            that cannot be read.
    """
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
