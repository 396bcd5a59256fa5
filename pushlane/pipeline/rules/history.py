"""The history of a rule's runs: those that are open, the last that ended, and spent budgets.

Each rule has one document, so that a run, its budget and its end change together. It is bounded:
the oldest ended runs are dropped first.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from pydantic import BaseModel, ConfigDict, ValidationError

from pushlane.core.errors import UnknownFormat
from pushlane.lanes.stored import checked
from pushlane.model.documents import MOST_BYTES
from pushlane.pipeline.rules.rule import Rule

MOST_OPEN = 50
MOST_ENDED = 100
LONGEST_REASON = 300
_DAYS_KEPT = 3


class RunState(StrEnum):
    """The states of a run: due → running → done | failed | refused.

    A failed run that may be tried again is waiting first; a run that is left out is skipped.
    """

    DUE = "due"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"

    @property
    def is_open(self) -> bool:
        return self in (RunState.DUE, RunState.RUNNING, RunState.WAITING)


class Run(BaseModel):
    """One run of a rule, known by the time it was due or requested.

    `rule` is the rule as it was when the run began, kept until it ends, and `most` is what its
    budgets left it then. `fence` is the number of the leader that has the run. `times` is how many
    due times a skipped run stands for.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    at_ms: int
    state: RunState = RunState.DUE
    asked: bool = False
    reason: str = ""
    rule: Rule | None = None
    revision: int = 0
    most: int | None = None
    fence: int = 0
    begun: int = 0
    failures: int = 0
    begun_at_ms: int = 0
    retry_at_ms: int = 0
    ended_at_ms: int = 0
    task_id: str = ""
    total: int | None = None
    times: int = 1

    @property
    def has_begun(self) -> bool:
        """Return True if the run is under way, or waits to be tried again."""
        return self.state in (RunState.RUNNING, RunState.WAITING)

    def changed(self, **fields: object) -> Run:
        return self.model_copy(update=fields)

    def ended(self, state: RunState, now_ms: int, reason: str = "", **fields: object) -> Run:
        told = reason[:LONGEST_REASON]
        return self.changed(state=state, reason=told, rule=None, ended_at_ms=now_ms, **fields)


class History(BaseModel):
    """The runs of a rule, oldest first.

    All due times up to `handled_ms` are among them. `spent` counts the pushes that the ended runs
    of each day have published.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    handled_ms: int = 0
    runs: tuple[Run, ...] = ()
    spent: dict[str, int] = {}

    def find(self, at_ms: int) -> Run | None:
        return next((run for run in self.runs if run.at_ms == at_ms), None)

    @property
    def open(self) -> list[Run]:
        return [run for run in self.runs if run.state.is_open]

    def with_runs(self, *runs: Run) -> History:
        """Return the history with these runs in place of those for the same times."""
        by_time = {run.at_ms: run for run in (*self.runs, *runs)}
        return self.model_copy(update={"runs": tuple(by_time[at] for at in sorted(by_time))})

    def with_spent(self, day: str, pushes: int) -> History:
        spent = {**self.spent, day: self.spent.get(day, 0) + pushes}
        kept = sorted(spent)[-_DAYS_KEPT:]
        return self.model_copy(update={"spent": {day: spent[day] for day in kept}})

    def spent_on(self, day: str) -> int:
        """Return the pushes of a day, including what the runs under way may still publish."""
        taken = [run for run in self.runs if run.has_begun and run.rule and _day(run) == day]
        return self.spent.get(day, 0) + sum(run.most or 0 for run in taken)

    def encode(self) -> bytes:
        """Encode the history; if it is larger than a document, the oldest ended runs are left
        out.
        """
        ended = [run.at_ms for run in self.runs if not run.state.is_open]
        gone = set(ended[: max(0, len(ended) - MOST_ENDED)])
        while len(body := self._encoded(gone)) > MOST_BYTES and len(gone) < len(ended):
            gone.update(ended[len(gone) : len(gone) + 5])
        return checked("the history of a rule", lambda: body, partial(decode_history, ""))

    def _encoded(self, gone: set[int]) -> bytes:
        kept = tuple(run for run in self.runs if run.at_ms not in gone)
        shown = self.model_copy(update={"runs": kept})
        return shown.model_dump_json(exclude_defaults=True).encode()


def decode_history(name: str, body: bytes) -> History:
    """Decode a stored history; raises UnknownFormat if only a newer version understands it."""
    try:
        return History.model_validate_json(body)
    except ValidationError as error:
        raise UnknownFormat(0, f"the history of rule {name!r}") from error


def run_key(rule: str, at_ms: int) -> str:
    """Return the key of the run's task, which is the same however often the run is made."""
    return f"rule-{rule}-{iso_utc(at_ms)}"


def iso_utc(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    return at.isoformat(timespec=precision).replace("+00:00", "Z")


def _day(run: Run) -> str:
    assert run.rule is not None
    return run.rule.schedule.day(run.begun_at_ms)
