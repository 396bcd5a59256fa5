"""Reads a task spec: a TOML file of submit's options, for a task whose rows come from Spark.

Durations and times are kept as written and only read when a task is made, so that one spec serves
many runs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails

from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.producers.request import SubmitRequest
from pushlane.producers.task_builder import new_task
from pushlane.producers.task_options import read_options, read_payload_file, written_options
from pushlane.producers.validate import NOTHING, has_content
from pushlane.settings import Settings
from pushlane.util.texts import did_you_mean

_NOT_HERE = {
    "ordered_by": "an audience has no order; submit an ordered task from a file",
    "format": "the audience's format is given beside it (--format)",
    "rejects": "rows that cannot be used are counted, not listed",
    "spool": "Spark needs the broker",
}


_FIELDS: Any = {name: kind for name, kind in written_options().items() if name not in _NOT_HERE}
_STRICT = ConfigDict(frozen=True, extra="forbid")
_Options: Any = create_model("_Options", __config__=_STRICT, **_FIELDS)


class TaskSpec(_Options):  # type: ignore[misc]  # its fields are those of TaskOptions
    """The options of every push of a run, by the names of submit's, as they are written."""

    def request(self, at_ms: int, key: str = "") -> SubmitRequest:
        """Return the submit request, without rows, for a task that is made at this time.

        Raises BadInput for a time or duration that cannot be read, or has passed.
        """
        written = {**self.model_dump(), **({"key": key} if key else {})}
        return SubmitRequest(source=(), **read_options(written, at_ms))

    def check(self, settings: Settings, key: str = "") -> None:
        """Raise BadInput if no task with this key can be made of the spec now, or an empty one."""
        request = self.request(now_ms(), key)
        new_task(request, settings)
        if not self.silent and not has_content(request):
            raise BadInput(
                f"the task's pushes would have {NOTHING}; give its spec a title or a body, or "
                "`silent = true` if that is meant"
            )


def load_spec(path: Path) -> TaskSpec:
    """Read the spec from a TOML file; raises BadInput as `parse_spec` does, or if it is none."""
    options = read_toml(path, "task spec")
    return parse_spec(with_payload(options, path.parent), str(path))


def with_payload(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the options with the payload itself in place of a file's name, which is beside them.

    So Spark's workers and later runs need no file. Raises BadInput if it cannot be read.
    """
    named = options.get("payload")
    if not named or not isinstance(named, str):
        return options
    return {**options, "payload": read_payload_file(folder / named)}


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

    Raises BadInput if an option is unknown, missing or has a bad value.
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
