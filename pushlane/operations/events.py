"""The operation that adds what devices report of pushes to their receipts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from pushlane.core.errors import UserError
from pushlane.model.receipt import Event
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.session import Session

if TYPE_CHECKING:
    from pushlane.producers.device_events import PushEvent

MOST_EVENTS = 10_000
"""So many events are recorded at once."""


class BadEvents(StrEnum):
    """What an event does that cannot be recorded: it refuses all behind it, or is left out.

    With `stop` it ends the work as `refuse` does, and is told in the result.
    """

    REFUSE = "refuse"
    STOP = "stop"
    SKIP = "skip"


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the push `push_id` (TASK-SEQ), which happened at `at_ms` (Unix ms)."""

    push_id: str
    event: Event
    at_ms: int
    attributes: dict[str, str] | None = None
    trace_id: str = ""

    @staticmethod
    def of(given: PushEvent) -> DeviceEvent:
        """Return an event as it is sent."""
        return DeviceEvent(
            push_id=given.push_id,
            event=Event(given.event),
            at_ms=given.at_ms,
            attributes=dict(given.attributes) if given.attributes else None,
            trace_id=given.trace_id,
        )


class RejectedEvent(msgspec.Struct, frozen=True):
    """An event that was not recorded: its place among those that were sent, from 1, and why."""

    place: int
    why: str


class RecordedView(msgspec.Struct, frozen=True):
    """How many events are recorded, and which are not."""

    recorded: int
    rejected: Sequence[RejectedEvent]


class RecordEvents(Operation[RecordedView], frozen=True, kw_only=True):
    """Add what devices report of pushes to their receipts. The same event again counts once.

    An event of a task or a push that there is not is refused, with all behind it: those before it
    may be recorded. Events are so many that the audit has none of them: they are in the receipts.
    """

    method, path, role, of = "POST", "/events", Role.SUBMITTER, Of.APPS
    commands = ("receipts add",)
    changes = True

    events: Annotated[
        tuple[DeviceEvent, ...],
        Meta(max_length=MOST_EVENTS, description=f"The events, {MOST_EVENTS:,} at most."),
    ]
    bad: Annotated[
        BadEvents, Meta(description="At an event that cannot be recorded: stop, or skip it.")
    ] = BadEvents.REFUSE

    async def run(self, at: Session) -> RecordedView:
        from pushlane.producers.device_events import Recorder

        recorder = Recorder(at.backend, at.settings, at.task)
        rejected: list[RejectedEvent] = []
        for place, one in enumerate(self.events, 1):
            try:
                await recorder.add(_event(one))
            except UserError as error:
                if self.bad is BadEvents.REFUSE:
                    raise
                rejected.append(RejectedEvent(place, str(error)))
                if self.bad is BadEvents.STOP:
                    break
        await recorder.flush()
        return RecordedView(recorder.recorded, rejected)


def _event(one: DeviceEvent) -> PushEvent:
    """Return it checked. Raises BadInput when no such push can be, or a value is out of bounds."""
    from pushlane.producers.device_events import PushEvent

    return PushEvent(**msgspec.structs.asdict(one))
