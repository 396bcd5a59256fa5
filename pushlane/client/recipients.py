"""Operations on recipients and addresses: whom nothing is sent to, and what devices report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from pushlane.client.connection import Connection
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.model.recipients import SuppressionScope, scope_of
from pushlane.model.times import given_since_ms
from pushlane.operations.events import MOST_EVENTS, DeviceEvent, RecordEvents
from pushlane.operations.operation import Operation
from pushlane.operations.recipients import (
    ChangedValues,
    CheckSuppressed,
    ClearSuppressions,
    CountSuppressions,
    DeadAddressView,
    ListDeadAddresses,
    RegisterAddresses,
    Suppress,
    Unsuppress,
)
from pushlane.producers.columns import address_text
from pushlane.producers.device_events import PushEvent
from pushlane.producers.request import OnProgress
from pushlane.producers.suppress import (
    ChangedSuppressions,
    ReadValue,
    Values,
    changed_by,
    reader_of,
    usable_value,
    value_pages,
)
from pushlane.util.conversion import instance, kind_of, text, whole

Texts = Path | Iterable[str]
Make = Callable[[tuple[str, ...]], Operation[ChangedValues]]
"""Makes the operation that changes these values."""

_COLUMN = "recipient"
_SINCE = "7d"
_LISTED = 100


async def change_values(
    client: Connection,
    values: Values,
    read: ReadValue,
    make: Make,
    tell: OnProgress = lambda progress: None,
) -> ChangedSuppressions:
    """Change what a file has, page by page; what was done before a fault stays done."""
    return await changed_by(value_pages(values, read, tell), in_one_entry(client, make))


def in_one_entry(
    client: Connection, make: Make
) -> Callable[[tuple[str, ...]], Awaitable[ChangedValues]]:
    """Return what changes some values after others, all in one entry of the audit."""
    entry = ""

    async def change(some: tuple[str, ...]) -> ChangedValues:
        nonlocal entry
        done = await client.do(replace(make(some), counts_into=entry))
        entry = done.entry or entry
        return done

    return change


class RecipientOperations(Connection):
    """What can be done about recipients and addresses.

    Values are given as texts, or as the Path of a file with a `column` of them. They hold for an
    app's recipients, for addresses at a sink, or with neither everywhere.
    """

    async def suppress(
        self, values: Texts, *, app: str = "", sink: str = "", column: str = _COLUMN
    ) -> ChangedSuppressions:
        """Send nothing to these from within a second on; return how many were not suppressed."""
        return await self._change(values, Suppress, app, sink, column)

    async def unsuppress(
        self, values: Texts, *, app: str = "", sink: str = "", column: str = _COLUMN
    ) -> ChangedSuppressions:
        """Suppress these no longer; return how many were suppressed."""
        return await self._change(values, Unsuppress, app, sink, column)

    async def suppressions(self) -> dict[SuppressionScope, int]:
        """Return how much is suppressed, by where it is."""
        found = await self.do(CountSuppressions())
        return {SuppressionScope(one.scope, one.name): one.suppressed for one in found}

    async def suppressed_in(self, value: str) -> list[SuppressionScope]:
        """Return where a recipient or an address is suppressed."""
        found = await self.do(CheckSuppressed.made(value=value))
        return [SuppressionScope(one.scope, one.name) for one in found]

    async def clear_suppressions(self, *, app: str = "", sink: str = "") -> int:
        """Remove all suppressions of an app, of a sink, or those that hold everywhere.

        They can be sent to again. Returns how many there were.
        """
        return (await self.do(ClearSuppressions.made(app=app, sink=sink))).removed

    async def dead_addresses(
        self,
        since_ms: int | datetime | timedelta | str = _SINCE,
        *,
        sink: str = "",
        limit: int = _LISTED,
    ) -> list[DeadAddressView]:
        """Return the addresses that sinks called dead since then, newest first; 0 is no limit."""
        since = given_since_ms("since_ms", since_ms, now_ms())
        most = whole("limit", limit, 0)
        found: list[DeadAddressView] = []
        after: int | None = 0
        while after is not None and not (most and len(found) >= most):
            wanted = ListDeadAddresses.made(
                since_ms=since, sink=sink, newest_first=True, after=after
            )
            page = await self.do(wanted)
            found += page.addresses
            after = page.after
        return found[:most] if most else found

    async def register_address(self, sink: str, address: str) -> bool:
        """Let an address that an app has registered anew be sent to at this sink again.

        Call it when a device tells its token: an answer about an earlier life of the token, which
        may come late, then changes nothing. Returns whether it was dead or suppressed there. Raises
        BadInput when the sink has no name, or no push can have such an address.
        """
        wanted = RegisterAddresses.made(sink=sink, values=(usable_value(address),))
        return bool((await self.do(wanted)).changed)

    async def register_addresses(
        self, sink: str, addresses: Texts, *, column: str = "token"
    ) -> ChangedSuppressions:
        """Let all these be sent to again at this sink, as `register_address` does one."""
        values = _values("addresses", addresses, column)
        made = partial(RegisterAddresses.made, sink=sink)
        return await change_values(self, values, address_text, lambda some: made(values=some))

    async def record_events(self, events: Iterable[PushEvent]) -> int:
        """Add what devices report to receipts; return how many events. Each counts once.

        Raises:
            UnknownTask: no task of an event's id is kept. Those before it may be recorded.
            BadInput: an event's task has no such push, or receipts are off.
        """
        if not isinstance(events, Iterable):
            raise BadInput(f"events is {kind_of(events)}; give an iterable of PushEvent")
        given = (DeviceEvent.of(instance("one of events", one, PushEvent)) for one in events)
        recorded = 0
        while page := tuple(islice(given, MOST_EVENTS)):
            recorded += (await self.do(RecordEvents(events=page))).recorded
        return recorded

    async def _change(
        self,
        values: Texts,
        kind: type[Suppress | Unsuppress],
        app: str,
        sink: str,
        column: str,
    ) -> ChangedSuppressions:
        given = _values("values", values, column)
        read = reader_of(scope_of(app, sink))
        return await change_values(
            self, given, read, lambda some: kind.made(values=some, app=app, sink=sink)
        )


def _values(what: str, given: Texts, column: str) -> Values:
    """Return the values of a file, or texts as rows. Raises BadInput for one text alone."""
    name = text("column", column)
    if isinstance(given, Path):
        return Values(given, name)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        shown = "one text" if isinstance(given, str) else kind_of(given)
        raise BadInput(f"{what} is {shown}; give a list of texts, or the Path of a file")
    return Values([{name: text(f"one of {what}", one)} for one in given], name)
