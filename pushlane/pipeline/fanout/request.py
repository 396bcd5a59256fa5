"""The request and the result of a fan-out, as plain frozen values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from pushlane.core.task import Progress, Task
from pushlane.pipeline.session import MASTER
from pushlane.pipeline.spec import TaskSpec
from pushlane.producers.request import SubmitRequest
from pushlane.producers.task_builder import DESCRIBED, describe, described, short_hashes
from pushlane.producers.task_options import CHECKS_ALONE, LATER
from pushlane.settings import Settings

MEMORY = "2g"
_SECRETS = ("password", "secret", "token", "user", "key")

KEY_PARTS = ("audience", "format", "option", "where", "exclude", *DESCRIBED)
"""The names of what the key of a fan-out stands for, in the order of the hashes kept of it."""


@dataclass(frozen=True, kw_only=True)
class FanoutRequest:
    """A request to make one task of the rows of an audience for which a rule holds.

    `audience` is a path or a table, `format` what Spark calls its format (told by the file's name
    unless given), `options` those of Spark's reader. `where` is SQL over its columns. Recipients in
    one of `exclude` (each a path or table, with `:COLUMN` behind it if it has more than one column)
    are left out. `zone` is the time zone of days in the rule, the session's unless given. The same
    `key` with the same content is one task; without one, a key is made of the request. More pushes
    than `most` are refused. `frozen` resumes with what an earlier run had frozen, whatever the
    audience holds now. `advise` is told of what the spec allows though it is hardly meant: empty
    pushes, and columns in doubled braces. `master`, `memory` and `spark_options` are Spark's.
    `traceparent` is as in `SubmitRequest`.
    """

    audience: str
    spec: TaskSpec
    where: str = ""
    zone: str = ""
    exclude: tuple[str, ...] = ()
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    most: int | None = None
    dry_run: bool = False
    frozen: bool = False
    advise: Callable[[str], None] | None = None
    master: str = MASTER
    memory: str = MEMORY
    spark_options: Mapping[str, str] = field(default_factory=dict)
    traceparent: str = ""

    @property
    def task_key(self) -> str:
        """Return the given key, the spec's key, or a key made of all that shapes the pushes."""
        return self.key or self.spec.key or f"fanout-{_hash(self._content())[:16]}"

    def fingerprint(self, settings: Settings) -> str:
        """Return a hash of all that a repeat must have in common with the first call."""
        described = describe(self._submit(), settings.but(batch=1))
        return _hash([described.decode(), *self._content()[:-1]])

    def made_of(self, settings: Settings) -> bytes:
        """Return short hashes of the same, one for each of KEY_PARTS."""
        options = described(self._submit(), settings.but(batch=1))
        return short_hashes([*self._content()[:-1], *options.values()])

    def _submit(self) -> SubmitRequest:
        """Return the submit without start and expiry, as they count from the first call."""
        unset = dict.fromkeys(("not_before", "delay", "expires"), "")
        spec: TaskSpec = self.spec.model_copy(update=unset)
        return spec.request(0)

    def _content(self) -> list[object]:
        options = {name: value for name, value in self.options.items() if not _is_secret(name)}
        source = [self.audience, self.format, sorted(options.items()), self.where]
        spec = self.spec.model_dump(mode="json")
        counted = {
            name: value
            for name, value in spec.items()
            if name not in CHECKS_ALONE and (value or name not in LATER)
        }
        return [*source, list(self.exclude), counted]


def _is_secret(option: str) -> bool:
    name = option.lower().replace("keyspace", "")  # is no secret: another one has other rows
    return any(word in name for word in _SECRETS)


def _hash(content: list[object]) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


class AudienceCounts(msgspec.Struct, frozen=True):
    """Counts of the rows for which the rule holds, by what became of them; `total` are pushes."""

    matched: int
    without_recipient: int
    excluded: int
    duplicates: int
    bad: int
    total: int


@dataclass(frozen=True)
class FanoutResult:
    """The sealed task, or None for a dry run.

    `published` counts the rows that this call sent, of which the broker keeps each once. `resumed`
    says that this call continued an unfinished run, `already_done` that an earlier one had
    finished: `progress` is then what has become of its pushes, else None. The times are those of
    this call's own steps.
    """

    task: Task | None
    counts: AudienceCounts | None
    published: int = 0
    resumed: bool = False
    already_done: bool = False
    freeze_s: float = 0.0
    publish_s: float = 0.0
    progress: Progress | None = None
