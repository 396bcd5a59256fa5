"""Reads a task spec: a TOML file of submit's options, for a task whose rows come from Spark.

Durations and times are kept as written and only read when a task is made, so that one spec serves
many runs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from pushlane.lanes.errors import BadInput
from pushlane.lanes.settings import Settings
from pushlane.lanes.suggestions import did_you_mean
from pushlane.lanes.task import DeliveryMode, Level, OnUnknown
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.request import SubmitRequest
from pushlane.producers.task_builder import new_task
from pushlane.producers.times import parse_expiry, parse_retention, parse_start

_NOT_HERE = {
    "ordered_by": "an audience has no order; submit an ordered task from a file",
    "format": "the audience's format is given beside it (--format)",
    "rejects": "rows that cannot be used are counted, not listed",
    "spool": "Spark needs the broker",
}


class TaskSpec(BaseModel):
    """The options that every push of a run shares, and the columns that the rest comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Level
    recipient: str = "recipient"
    title: str = ""
    body: str = ""
    data: tuple[str, ...] = ()
    dedupe: Literal["", "recipient"] = ""
    collapse: str = ""
    attribute: tuple[str, ...] = ()
    trace_id: str = ""
    quota: int = 1
    name: str = ""
    key: str = ""
    app: str = "default"
    not_before: str = ""
    delay: str = ""
    expires: str = ""
    not_before_column: str = ""
    expires_column: str = ""
    quiet: str = ""
    zone: str = ""
    zone_column: str = ""
    retention: str = ""
    max_attempts: int | None = None
    delivery: DeliveryMode = DeliveryMode.AT_LEAST_ONCE
    on_unknown: OnUnknown | None = None
    bad_rows: Literal["stop", "skip"] = "stop"

    def request(self, at_ms: int, key: str = "") -> SubmitRequest:
        """Return the submit request, without rows, for a task that is made at this time.

        Raises:
            BadInput: a time or duration that cannot be read, or has passed.
        """
        read = {"key", "not_before", "delay", "expires", "retention", "attribute"}
        given = self.model_dump(exclude=read)
        return SubmitRequest(
            source=(),
            key=key or self.key,
            attributes=self.attribute,
            not_before_ms=parse_start(self.not_before, self.delay, at_ms),
            expires_at_ms=parse_expiry(self.expires, at_ms) if self.expires else 0,
            retention_s=parse_retention(self.retention) if self.retention else None,
            **given,
        )

    def check(self, settings: Settings, key: str = "") -> None:
        """Raise BadInput if no task with this key could be made of the spec now."""
        new_task(self.request(now_ms(), key), settings)


def load_spec(path: Path) -> TaskSpec:
    """Read the spec from a TOML file.

    Raises:
        BadInput: the file cannot be read, or an option is unknown, missing or has a bad value.
    """
    return parse_spec(read_toml(path, "task spec"), str(path))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file; raises BadInput if it cannot be read, and says what it should be."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BadInput(f"{what} {path} cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{what} {path} is not TOML: {error}") from error


def parse_spec(options: dict[str, Any], where: str) -> TaskSpec:
    """Make a spec of options, whose names may have dashes or underscores; `where` is for messages.

    Raises:
        BadInput: an option is unknown, missing or has a bad value.
    """
    try:
        return TaskSpec(**{name.replace("-", "_"): value for name, value in options.items()})
    except ValidationError as error:
        raise _bad_option(error.errors()[0], where) from error


def _bad_option(found: ErrorDetails, where: str) -> BadInput:
    """Return an error that names the option and its allowed values, but never quotes its value."""
    name = str(found["loc"][0])
    if found["type"] == "missing":
        return BadInput(f"task spec {where} has no {name!r}; add it")
    if found["type"] == "extra_forbidden":
        reason = _NOT_HERE.get(name)
        if reason:
            return BadInput(f"task spec {where}: {name!r} cannot be used here: {reason}")
        known = ", ".join(TaskSpec.model_fields)
        hint = did_you_mean(name, TaskSpec.model_fields)
        return BadInput(f"task spec {where}: there is no option {name!r}{hint}; known: {known}")
    message = found["msg"][:1].lower() + found["msg"][1:]
    return BadInput(f"task spec {where}: {name!r}: {message}")
