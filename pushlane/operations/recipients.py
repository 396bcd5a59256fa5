"""Operations on recipients and addresses: whom nothing is sent to, and what devices register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from pushlane.backends.ports import number_of
from pushlane.core.errors import BadInput
from pushlane.model.limits import Subject
from pushlane.model.recipients import DeadAddress, DeadAddressQuery, SuppressionScope, scope_of
from pushlane.model.times import LAST_DATE_MS
from pushlane.operations.known import unknown_text
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.paging import AtMost, Cursor, note_next, page, place_of
from pushlane.operations.session import Session
from pushlane.util.errors import NotAllowed

if TYPE_CHECKING:
    from pushlane.producers.suppress import HashedValues

MOST_VALUES = 10_000
"""So many values are taken at once."""

_LAST = 2**63 - 2

AppName = Annotated[str, Meta(description="Only as recipients of this app.")]
SinkName = Annotated[str, Meta(description="Only as addresses at this sink.")]
ManyValues = Annotated[
    tuple[str, ...],
    Meta(description=f"Recipients or addresses, up to {MOST_VALUES:,} at once."),
]

CountsInto = Annotated[
    str,
    Meta(
        pattern=r"^(\d{20}-[0-9a-f]{12})?$",
        description="The `entry` that the answer to the values before these has: they are in one.",
    ),
]


class ChangedValues(msgspec.Struct, frozen=True):
    """`given` values that can be used, of which `changed` were not as wanted before.

    `left_out` counts those that no push can have. `entry` names the entry of the audit: give it as
    `counts_into` with the next values of a list, and the list is one entry. `remark` says so where
    nobody knows the app or the sink: its name may be misspelt.
    """

    given: int
    changed: int
    left_out: int
    entry: str | None = None
    remark: str | None = None


class SuppressedIn(msgspec.Struct, frozen=True):
    """Where a value is suppressed: of an `app`, at a `sink`, or `everywhere`."""

    scope: str
    name: str


class SuppressedCount(msgspec.Struct, frozen=True):
    """How many values are suppressed there."""

    scope: str
    name: str
    suppressed: int


class Removed(msgspec.Struct, frozen=True):
    """How many there were that are there no longer."""

    removed: int


class _Change(Operation[ChangedValues], frozen=True, kw_only=True):
    """A change of what is suppressed."""

    values: ManyValues
    app: AppName = ""
    sink: SinkName = ""
    counts_into: CountsInto = ""

    async def hashed(self, at: Session) -> HashedValues:
        """Return the hashes of the values. Raises BadInput for too many."""
        from pushlane.producers.suppress import hashed_values  # which loads readers of files

        refuse_many(self.values)
        return await hashed_values(at.backend, self.values)

    async def _apply(self, at: Session, *, adds: bool) -> ChangedValues:
        from pushlane.producers.suppress import suppress_hashed

        scope = scope_seen(at, self.app, self.sink)
        done = await suppress_hashed(at.backend, await self.hashed(at), scope, adds=adds)
        verb, entry = "suppressed" if adds else "not suppressed any more", self.counts_into
        if done.changed:
            counted = {verb: done.changed}
            entry = at.changed(scope_word(scope), {}, counted, self.app, self.counts_into)
        remark = await _remark(at, Subject(*scope), self.counts_into) if adds else None
        return ChangedValues(done.given, done.changed, done.left_out, entry or None, remark)


class Suppress(_Change, frozen=True, kw_only=True):
    """Send nothing to these, from within a second on."""

    method, path, role, of = "POST", "/suppressions/add", Role.OPERATOR, Of.APPS
    commands = ("suppress add",)
    changes = True

    async def run(self, at: Session) -> ChangedValues:
        return await self._apply(at, adds=True)


class Unsuppress(_Change, frozen=True, kw_only=True):
    """Suppress these no longer."""

    method, path, role, of = "POST", "/suppressions/remove", Role.OPERATOR, Of.APPS
    commands = ("suppress remove",)
    changes = True

    async def run(self, at: Session) -> ChangedValues:
        return await self._apply(at, adds=False)


class CountSuppressions(Operation[list[SuppressedCount]], frozen=True, kw_only=True):
    """Count what is suppressed, by where it is."""

    method, path, role, of = "GET", "/suppressions", Role.VIEWER, Of.APPS
    commands = ("suppress count",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[SuppressedCount]:
        found = [
            SuppressedCount(scope.kind, scope.name, size)
            for scope, size in sorted((await at.backend.suppressions.counts()).items())
            if at.apps is None or (scope.kind == "app" and at.sees(scope.name))
        ]
        return [*page(at, self, found, lambda one: f"{one.scope}/{one.name}")]


class CheckSuppressed(Operation[list[SuppressedIn]], frozen=True, kw_only=True):
    """Tell where a recipient or an address is suppressed. The answer does not show it."""

    method, path, role, of = "POST", "/suppressions/check", Role.VIEWER, Of.APPS
    commands = ("suppress check",)

    value: Annotated[str, Meta(description="A recipient or an address.")]

    async def run(self, at: Session) -> list[SuppressedIn]:
        from pushlane.producers.suppress import suppressed_in

        found = await suppressed_in(at.backend, self.value)
        return [
            SuppressedIn(scope.kind, scope.name)
            for scope in found
            if at.apps is None or (scope.kind == "app" and at.sees(scope.name))
        ]


class ClearSuppressions(Operation[Removed], frozen=True, kw_only=True):
    """Remove all suppressions of an app, of a sink, or those that hold everywhere.

    They can be sent to again.
    """

    method, path, role, of = "DELETE", "/suppressions", Role.OPERATOR, Of.APPS
    commands = ("suppress clear",)
    changes = destroys = True

    app: AppName = ""
    sink: SinkName = ""

    async def run(self, at: Session) -> Removed:
        scope = scope_seen(at, self.app, self.sink)
        size = (await at.backend.suppressions.counts()).get(scope, 0)
        await at.backend.suppressions.clear(scope)
        if size:
            at.changed(scope_word(scope), {"suppressed": size}, {"suppressed": 0}, self.app)
        return Removed(size)


class DeadAddressView(msgspec.Struct, frozen=True):
    """A dead address at a sink, by a fingerprint. Times are Unix ms.

    `sealed` is the address, encrypted with the setting `address_key` of the dispatchers: absent
    unless it was asked for.
    """

    sink: str
    fingerprint: str
    app: str
    reason: str
    died_at_ms: int
    recorded_at_ms: int
    sealed: str | None = None


class DeadAddresses(msgspec.Struct, frozen=True):
    """Some dead addresses. `after` is where the next go on, absent with the last."""

    addresses: list[DeadAddressView]
    after: int | None = None


class ListDeadAddresses(Operation[DeadAddresses], frozen=True, kw_only=True):
    """List addresses that sinks called dead, by a fingerprint: they are sent to no more."""

    method, path, role, of = "GET", "/dead-addresses", Role.OPERATOR, Of.EVERYTHING
    commands = ("tokens dead",)

    since_ms: Annotated[
        int, Meta(ge=0, le=LAST_DATE_MS, description="Recorded since then (Unix ms).")
    ] = 0
    sink: Annotated[str, Meta(description="Only of this sink.")] = ""
    newest_first: Annotated[bool, Meta(description="Else oldest first.")] = False
    sealed: Annotated[bool, Meta(description="With the encrypted addresses.")] = False
    after: Annotated[
        int, Meta(ge=0, le=_LAST, description="Go on there, as the last page says.")
    ] = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> DeadAddresses:
        query = DeadAddressQuery(self.since_ms, self.sink, newest_first=self.newest_first)
        place = place_of(self)
        after = number_of(place) if place else self.after
        found = await at.backend.dead_addresses.page(query, after)
        if found.after:
            note_next(at, self, str(found.after))
        shown = [_address_view(one, sealed=self.sealed) for one in found.addresses]
        return DeadAddresses(shown, found.after or None)


class RegisterAddresses(Operation[ChangedValues], frozen=True, kw_only=True):
    """Let addresses be sent to again at a sink: devices have registered them anew.

    Each is suppressed there no longer, its record is removed, and news of an earlier death that
    comes late changes nothing.
    """

    method, path, role, of = "POST", "/sinks/{sink}/registered", Role.SUBMITTER, Of.EVERYTHING
    commands = ("tokens register",)
    changes = True

    sink: Annotated[str, Meta(description="At this sink.")]
    values: ManyValues
    counts_into: CountsInto = ""

    async def run(self, at: Session) -> ChangedValues:
        from pushlane.producers.suppress import register_values

        refuse_many(self.values)
        done = await register_values(at.backend, self.sink, self.values)
        entry = self.counts_into
        if done.changed:
            counted = {"registered anew": done.changed}
            entry = at.changed(f"sink/{self.sink}", {}, counted, counts_into=entry)
        remark = await _remark(at, Subject("sink", self.sink), self.counts_into)
        return ChangedValues(done.given, done.changed, done.left_out, entry or None, remark)


async def _remark(at: Session, subject: Subject, counts_into: str) -> str | None:
    """Say once for a list that nobody knows an app or a sink; None where somebody does."""
    if counts_into:
        return None
    return await unknown_text(at.backend, at.settings, subject) or None


def refuse_many(values: tuple[str, ...]) -> None:
    """Raise BadInput for more values than are taken at once."""
    if len(values) > MOST_VALUES:
        raise BadInput(f"{len(values):,} values are too many at once; send {MOST_VALUES:,} at most")


def scope_seen(at: Session, app: str, sink: str) -> SuppressionScope:
    """Return where a change holds. Raises NotAllowed for what other apps have part in."""
    scope = scope_of(app, sink)
    if at.apps is not None and not app:
        raise NotAllowed("a suppression at a sink or everywhere concerns all apps: name your app")
    return scope


def scope_word(scope: SuppressionScope) -> str:
    """Return a scope as the audit has it: `app/shop`, `sink/fcm` or `everywhere`."""
    return f"{scope.kind}/{scope.name}" if scope.name else "everywhere"


def _address_view(one: DeadAddress, *, sealed: bool) -> DeadAddressView:
    return DeadAddressView(
        one.sink,
        one.fingerprint,
        one.app,
        one.reason,
        one.died_at_ms,
        one.recorded_at_ms,
        one.sealed if sealed else None,
    )
