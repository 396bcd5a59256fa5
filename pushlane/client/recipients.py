"""Operations on recipients and addresses: whom nothing is sent to, and what devices report."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from pushlane.client.connection import Connection
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.model.recipients import DeadAddress, DeadAddressQuery, SuppressionScope, scope_of
from pushlane.model.times import given_since_ms
from pushlane.producers.device_events import PushEvent, record_events
from pushlane.producers.suppress import (
    ChangedSuppressions,
    Values,
    change_suppressed,
    register_address,
    register_file,
    suppressed_in,
)
from pushlane.util.conversion import kind_of, text, whole

Texts = Path | Iterable[str]
_COLUMN = "recipient"
_SINCE = "7d"
_LISTED = 100


class RecipientOperations(Connection):
    """What can be done about recipients and addresses.

    Values are given as texts, or as the Path of a file with a `column` of them. They hold for an
    app's recipients, for addresses at a sink, or with neither everywhere.
    """

    async def suppress(
        self, values: Texts, *, app: str = "", sink: str = "", column: str = _COLUMN
    ) -> ChangedSuppressions:
        """Send nothing to these from within a second on; return how many were not suppressed."""
        return await self._change(values, scope_of(app, sink), column, adds=True)

    async def unsuppress(
        self, values: Texts, *, app: str = "", sink: str = "", column: str = _COLUMN
    ) -> ChangedSuppressions:
        """Suppress these no longer; return how many were suppressed."""
        return await self._change(values, scope_of(app, sink), column, adds=False)

    async def suppressions(self) -> dict[SuppressionScope, int]:
        """Return how much is suppressed, by where it is."""
        return await self._open.suppressions.counts()

    async def suppressed_in(self, value: str) -> list[SuppressionScope]:
        """Return where a recipient or an address is suppressed."""
        return await suppressed_in(self._open, value)

    async def clear_suppressions(self, *, app: str = "", sink: str = "") -> int:
        """Remove all suppressions of an app, of a sink, or those that hold everywhere.

        They can be sent to again. Returns how many there were.
        """
        scope = scope_of(app, sink)
        size = (await self._open.suppressions.counts()).get(scope, 0)
        await self._open.suppressions.clear(scope)
        return size

    async def dead_addresses(
        self,
        since_ms: int | datetime | timedelta | str = _SINCE,
        *,
        sink: str = "",
        limit: int = _LISTED,
    ) -> list[DeadAddress]:
        """Return the addresses that sinks called dead since then, newest first; 0 is no limit."""
        since = given_since_ms("since_ms", since_ms, now_ms())
        query = DeadAddressQuery(since, text("sink", sink), newest_first=True)
        most = whole("limit", limit, 0)
        found: list[DeadAddress] = []
        after, is_last = 0, False
        while not is_last and not (most and len(found) >= most):
            page = await self._open.dead_addresses.page(query, after)
            found += page.addresses
            after, is_last = page.after, not page.after
        return found[:most] if most else found

    async def register_address(self, sink: str, address: str) -> bool:
        """Let an address that an app has registered anew be sent to at this sink again.

        Call it when a device tells its token: an answer about an earlier life of the token, which
        may come late, then changes nothing. Returns whether it was dead or suppressed there. Raises
        BadInput when the sink has no name, or no push can have such an address.
        """
        return await register_address(self._open, sink, address)

    async def register_addresses(
        self, sink: str, addresses: Texts, *, column: str = "token"
    ) -> ChangedSuppressions:
        """Let all these be sent to again at this sink, as `register_address` does one."""
        values = _values("addresses", addresses, column)
        return await register_file(self._open, sink, values, lambda progress: None)

    async def record_events(self, events: Iterable[PushEvent]) -> int:
        """Add what devices report to receipts; return how many events. Each counts once.

        Raises:
            UnknownTask: no task of an event's id is kept. Those before it may be recorded.
            BadInput: an event's task has no such push, or receipts are off.
        """
        return await record_events(self._open, self._settings, events)

    async def _change(
        self, values: Texts, scope: SuppressionScope, column: str, *, adds: bool
    ) -> ChangedSuppressions:
        given = _values("values", values, column)
        return await change_suppressed(self._open, given, scope, lambda progress: None, adds=adds)


def _values(what: str, given: Texts, column: str) -> Values:
    """Return the values of a file, or texts as rows. Raises BadInput for one text alone."""
    name = text("column", column)
    if isinstance(given, Path):
        return Values(given, name)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        shown = "one text" if isinstance(given, str) else kind_of(given)
        raise BadInput(f"{what} is {shown}; give a list of texts, or the Path of a file")
    return Values([{name: text(f"one of {what}", one)} for one in given], name)
