"""The ports about recipients, on SQLite: windows, counts of days, suppressions, dead addresses.

Each call of the windows deletes some of the rows that are older, so that their tables hold about a
window's worth of recipients.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from sqlite3 import Connection

import msgspec

from pushlane.backends.embedded.database import (
    Database,
    StorePort,
    json_of,
    reads,
    writes,
    writes_durably,
)
from pushlane.backends.embedded.ledger import latest_ms
from pushlane.backends.embedded.mark_log import LoggedMark, MarkLog, move, trim
from pushlane.backends.guard_ports import RecipientTurn
from pushlane.core.task import now_ms
from pushlane.model.recipients import (
    AddressDeath,
    CapDay,
    DeadAddress,
    DeadAddressPage,
    DeadAddressQuery,
    Mark,
    SuppressionScope,
)

# Nearly always nothing was counted with any of the keys, and there is nothing more to ask. In the
# form of an upsert this would take twice as long: SQLite would prepare to undo it.
_COUNT_NEW = """
INSERT OR IGNORE INTO counted (day, key, tokens)
SELECT :day, value, given.key || ':' || :level || ' ' FROM json_each(:keys) AS given
"""

_COUNT = """
INSERT INTO counted (day, key, tokens)
SELECT :day, value, given.key || ':' || :level || ' ' FROM json_each(:keys) AS given WHERE true
ON CONFLICT (day, key) DO UPDATE SET tokens = tokens || excluded.tokens
WHERE instr(' ' || tokens, ' ' || substr(excluded.tokens, 1, instr(excluded.tokens, ':'))) = 0
    AND length(tokens) - length(replace(tokens, ':', '')) < :in_all
    AND length(tokens) - length(replace(tokens, ':' || :level, :level)) < :of_level
"""

_REFUSED = """
SELECT json_group_array(given.key) FROM json_each(:keys) AS given CROSS JOIN counted
ON day = :day AND counted.key = given.value
WHERE instr(' ' || tokens, ' ' || given.key || ':') = 0
"""

_UNCOUNT = """
UPDATE counted SET tokens = ltrim(
    replace(' ' || tokens, ' ' || given.key || ':' || :level || ' ', ' '), ' ')
FROM json_each(:keys) AS given WHERE day = :day AND counted.key = given.value
"""

_EMPTY = """
DELETE FROM counted WHERE day = :day AND tokens = ''
    AND key IN (SELECT value FROM json_each(:keys))
"""

_SWEEP_COUNTS = """
DELETE FROM counted WHERE (day, key) IN (
    SELECT day, key FROM counted WHERE day < :oldest ORDER BY day, key LIMIT 2 * :size + 64
)
"""

_LIVE_DAYS = 2
"""A date lasts 50 hours around the world, so that on one day in UTC three dates are seen."""


class EmbeddedDayCounts(StorePort):
    """The part of `guard_ports.RecipientWindows` that counts: a row for each recipient and day.

    A row holds the tokens of its pushes as `TOKEN:LEVEL `, one after another.
    """

    _swept_before = 0

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        return await self._count(on, keys) if min(on.cap) > 0 else list(keys)

    @writes
    def _count(self, store: Connection, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        values = self._values(on, keys)
        self._sweep(store, len(keys))
        if store.execute(_COUNT_NEW, values).rowcount == len(keys):
            return []
        store.execute(_COUNT, values)
        return list(json_of(store, _REFUSED, values))

    @writes
    def uncount(self, store: Connection, on: CapDay, keys: Mapping[str, int]) -> None:
        left = dict(keys)
        while left:  # an update takes one token of a key at a time
            some = {key: token for token, key in left.items()}
            values = self._values(on, {token: key for key, token in some.items()})
            store.execute(_UNCOUNT, values)
            store.execute(_EMPTY, values)
            left = {token: key for token, key in left.items() if some[key] != token}

    def _values(self, on: CapDay, keys: Mapping[str, int]) -> dict[str, str | int]:
        return {
            "keys": msgspec.json.encode(keys).decode(),
            "day": on.day,
            "level": on.level[0],
            "of_level": on.cap.of_level,
            "in_all": on.cap.in_all,
        }

    def _sweep(self, store: Connection, size: int) -> None:
        """Delete some rows of days that are over, until none is left of them."""
        oldest = self._clock_ms() // 86_400_000 - _LIVE_DAYS
        if oldest == self._swept_before:
            return
        if not store.execute(_SWEEP_COUNTS, {"oldest": oldest, "size": size}).rowcount:
            self._swept_before = oldest


# Nearly all marks are new, and so the first ones: then nothing more is to be asked.
_FIRST_NEW = """
INSERT OR IGNORE INTO marks (key, token, holder, until_ms, forget_at_ms)
SELECT given.key, value, '', 0, :forget_at_ms FROM json_each(:tokens) AS given
"""

_FIRST = """
INSERT INTO marks (key, token, holder, until_ms, forget_at_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), '', 0, :forget_at_ms
FROM json_each(:marks) WHERE true
ON CONFLICT (key) DO UPDATE SET token = excluded.token, forget_at_ms = :forget_at_ms
WHERE forget_at_ms <= :now_ms
"""

_ANNOUNCE = """
INSERT INTO marks (key, token, holder, until_ms, forget_at_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), '', 0, :forget_at_ms
FROM json_each(:marks) WHERE true
ON CONFLICT (key) DO UPDATE SET
    token = CASE WHEN forget_at_ms <= :now_ms THEN excluded.token
        ELSE max(token, excluded.token) END,
    holder = CASE WHEN forget_at_ms <= :now_ms THEN '' ELSE holder END,
    forget_at_ms = :forget_at_ms
"""

# The holder names its token, too: an older one may still hold what is the newest's by now.
_ENTER = """
UPDATE marks SET holder = :owner || token, until_ms = :until_ms FROM json_each(:marks) AS given
WHERE marks.key = json_extract(value, '$[0]') AND token = json_extract(value, '$[1]')
    AND (holder IN ('', :owner || token) OR until_ms <= :now_ms OR until_ms > :latest_ms)
"""

_LEAVE = """
UPDATE marks SET holder = '' FROM json_each(:marks) AS given
WHERE marks.key = json_extract(value, '$[0]')
    AND holder = :owner || json_extract(value, '$[1]')
"""

_ANSWERS = """
SELECT json_group_object(given.key, CASE
    WHEN token <> json_extract(value, '$[1]') THEN 'over'
    WHEN holder IN ('', :owner || token) THEN 'go'
    ELSE 'busy'
END)
FROM json_each(:marks) AS given JOIN marks ON marks.key = json_extract(value, '$[0]')
"""

_SWEEP_MARKS = """
DELETE FROM marks WHERE key IN (
    SELECT key FROM marks WHERE forget_at_ms <= :now_ms
    ORDER BY forget_at_ms LIMIT 2 * :size + 64
)
"""


_SWEPT_AT_ONCE = 64
_MOVED_AT_ONCE = 16_384


class EmbeddedRecipientWindows(EmbeddedDayCounts):
    """See `guard_ports.RecipientWindows`: a row for each mark's key, with whose turn it is.

    Those of a window of their own, of which there may be thousands in a second, come by a log.
    """

    def __init__(
        self, database: Database, window_s: float, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        super().__init__(database, clock_ms)
        self._window_ms = round(window_s * 1000)
        self._unswept = 0
        self._log = MarkLog()
        self._move_due: asyncio.Event | None = None  # once there was something to move

    async def first(self, marks: Sequence[Mark], window_s: float | None = None) -> list[bool]:
        if window_s is None:
            return await self._first(marks)
        firsts = await self._first_in_log(marks, round(window_s * 1000))
        if self._log.size >= _MOVED_AT_ONCE:
            self._move_soon()
        return firsts

    async def announce(self, marks: Sequence[Mark]) -> None:
        await self._change((_SWEEP_MARKS, _ANNOUNCE), marks)

    async def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> list[RecipientTurn]:
        return await self._change((_SWEEP_MARKS, _ANNOUNCE, _ENTER), marks, owner, ttl_s)

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        await self._change((_LEAVE,), marks, owner)

    @writes
    def _first(self, store: Connection, marks: Sequence[Mark]) -> list[bool]:
        now, tokens = self._clock_ms(), dict(marks)
        self._unswept += len(marks)
        if self._unswept >= _SWEPT_AT_ONCE:
            store.execute(_SWEEP_MARKS, {"now_ms": now, "size": self._unswept})
            self._unswept = 0
        values = {
            "tokens": msgspec.json.encode(tokens).decode(),
            "owner": "",
            "now_ms": now,
            "forget_at_ms": now + self._window_ms,
        }
        is_new = len(tokens) == len(marks)
        if is_new and store.execute(_FIRST_NEW, values).rowcount == len(marks):
            return [True] * len(marks)
        values["marks"] = json.dumps(marks)
        store.execute(_FIRST, values)
        by_place = json_of(store, _ANSWERS, values)
        return [by_place[str(place)] == RecipientTurn.GO for place in range(len(marks))]

    @writes
    def _first_in_log(self, store: Connection, marks: Sequence[Mark], window_ms: int) -> list[bool]:
        now, step_ms = self._clock_ms(), window_ms // 100 or 1
        forget_at_ms = -(-(now + window_ms) // step_ms) * step_ms  # few times, near in the index
        return self._log.first(store, marks, now, forget_at_ms)

    def _move_soon(self) -> None:
        if self._move_due is None:
            self._move_due = due = asyncio.Event()
            self._database.beside(lambda: self._move_when(due), "the move of marks")
        self._move_due.set()

    async def _move_when(self, due: asyncio.Event) -> None:
        """Move the log's marks to their table when that is due, a part in each transaction."""
        await due.wait()
        last, parts = await self._logged()
        for part in parts:
            await self._move(part)
        await self._trim(last)
        due.clear()

    @writes
    def _logged(self, store: Connection) -> tuple[int, list[list[LoggedMark]]]:
        return self._log.parts(store)

    @writes
    def _move(self, store: Connection, part: Sequence[LoggedMark]) -> None:
        now = self._clock_ms()
        store.execute(_SWEEP_MARKS, {"now_ms": now, "size": len(part)})
        move(store, part, now)

    @writes
    def _trim(self, store: Connection, last: int) -> None:
        trim(store, last)

    @writes
    def _change(
        self,
        store: Connection,
        statements: Sequence[str],
        marks: Sequence[Mark],
        owner: str = "",
        ttl_s: float = 0,
    ) -> list[RecipientTurn]:
        """Run the statements; return where each mark stands then."""
        now, ttl_ms = self._clock_ms(), round(ttl_s * 1000)
        values = {
            "marks": json.dumps(marks),
            "size": len(marks),
            "owner": f"{owner} " if owner else "",
            "now_ms": now,
            "until_ms": now + ttl_ms,
            "latest_ms": latest_ms(now, ttl_ms),
            "forget_at_ms": now + ttl_ms + self._window_ms,
        }
        for statement in statements:
            store.execute(statement, values)
        by_place = json_of(store, _ANSWERS, values)
        return [RecipientTurn(by_place[str(place)]) for place in range(len(marks))]


_SCOPE = "INSERT OR IGNORE INTO suppression_scopes (name, size) VALUES (?, 0)"
_SCOPE_ID = "SELECT id FROM suppression_scopes WHERE name = ?"

_ADD = """
INSERT OR IGNORE INTO suppressed (scope_id, hash)
SELECT ?1, value FROM json_each(?2) ORDER BY value
"""

_REMOVE_HASHES = """
DELETE FROM suppressed WHERE scope_id = ?1 AND hash IN (SELECT value FROM json_each(?2))
"""

_FIND = """
SELECT json_group_array(value) FROM json_each(?2) CROSS JOIN suppressed
ON scope_id = (SELECT id FROM suppression_scopes WHERE name = ?1) AND hash = value
"""

_CLEAR_SOME = """
DELETE FROM suppressed WHERE scope_id = ?1 AND hash IN
    (SELECT hash FROM suppressed WHERE scope_id = ?1 LIMIT 20000)
"""

_RESIZE = "UPDATE suppression_scopes SET size = size + ? WHERE id = ?"

_COUNTS = "SELECT json_group_object(name, size) FROM suppression_scopes WHERE size > 0"


class EmbeddedSuppressions(StorePort):
    """See `guard_ports.Suppressions`: a row for each scope with its count, one for each hash."""

    @writes_durably
    def add(self, store: Connection, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return _suppress(store, scope, hashes)

    @writes_durably
    def remove(self, store: Connection, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return _unsuppress(store, scope, hashes)

    async def clear(self, scope: SuppressionScope) -> None:
        """Remove some thousands at a time, so that others are not kept waiting."""
        while await self._clear_some(scope):
            pass

    @writes_durably
    def _clear_some(self, store: Connection, scope: SuppressionScope) -> int:
        place = _place(store, scope)
        removed = store.execute(_CLEAR_SOME, (place,)).rowcount
        store.execute(_RESIZE, (-removed, place))
        return removed

    @reads
    def counts(self, store: Connection) -> dict[SuppressionScope, int]:
        sizes = json_of(store, _COUNTS)
        return {SuppressionScope.parse(name): size for name, size in sizes.items()}

    @reads
    def find(
        self, store: Connection, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> dict[SuppressionScope, list[int]]:
        return {
            scope: json_of(store, _FIND, (str(scope), json.dumps(hashes)))
            for scope, hashes in asked.items()
        }


def _suppress(store: Connection, scope: SuppressionScope, hashes: Sequence[int]) -> int:
    place = _place(store, scope)
    added = store.execute(_ADD, (place, json.dumps(list(hashes)))).rowcount
    store.execute(_RESIZE, (added, place))
    return added


def _unsuppress(store: Connection, scope: SuppressionScope, hashes: Sequence[int]) -> int:
    place = _place(store, scope)
    removed = store.execute(_REMOVE_HASHES, (place, json.dumps(list(hashes)))).rowcount
    store.execute(_RESIZE, (-removed, place))
    return removed


def _place(store: Connection, scope: SuppressionScope) -> int:
    """Return the id of a scope, which is made when it is not there."""
    store.execute(_SCOPE, (str(scope),))
    return int(store.execute(_SCOPE_ID, (str(scope),)).fetchone()[0])


PAGE = 500

_ALIVE = """
SELECT json_group_array(hash) FROM json_each(:deaths) AS given CROSS JOIN registered
ON hash = json_extract(value, '$[0]') AND sink = :sink
WHERE at_ms >= json_extract(value, '$[1]')
"""

_FREE = "SELECT max(n) FROM dead_addresses WHERE n >= ?1 AND n < ?1 + 60000000"

_RECORD = """
INSERT OR IGNORE INTO dead_addresses (n, sink, hash, died_at_ms, reason, app, sealed)
SELECT :first + given.key, :sink, json_extract(value, '$[0]'), json_extract(value, '$[1]'),
    json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(:deaths) AS given
"""

_RECORDED = "SELECT json_group_array(hash) FROM dead_addresses WHERE n >= ? AND n < ?"

_REMOVE_ADDRESSES = """
DELETE FROM dead_addresses
WHERE hash IN (SELECT value FROM json_each(:hashes)) AND sink = :sink
"""

_REGISTER = """
INSERT INTO registered (hash, sink, at_ms) SELECT value, :sink, :at_ms FROM json_each(:hashes)
WHERE true ON CONFLICT (hash, sink) DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)
"""

_PAGE = """
SELECT json_group_array(json_array(n, sink, hash, died_at_ms, reason, app, sealed)) FROM (
    SELECT * FROM dead_addresses WHERE n >= :first AND n < :end AND :sink IN ('', sink)
    ORDER BY n LIMIT :page)
"""

_FORGET = """
DELETE FROM dead_addresses WHERE n IN (
    SELECT n FROM dead_addresses WHERE n < ? ORDER BY n LIMIT ?)
"""

_FORGET_REGISTERED = """
DELETE FROM registered WHERE (hash, sink) IN (
    SELECT hash, sink FROM registered WHERE at_ms < ? ORDER BY at_ms LIMIT ?)
"""


class EmbeddedDeadAddresses(StorePort):
    """See `guard_ports.DeadAddresses`: a row for each, and one for each that was registered.

    A row's number is the microsecond at which it was recorded, or the next one that is free: so
    rows lie in the order of their times, and a page begins behind a number.
    """

    @writes_durably
    def record(
        self, store: Connection, sink: str, deaths: Sequence[AddressDeath], at_ms: int
    ) -> list[int]:
        dead = _not_registered(store, sink, deaths)
        _suppress(store, SuppressionScope("sink", sink), [one.hash for one in dead])
        return _recorded(store, sink, dead, at_ms)

    @writes_durably
    def register(self, store: Connection, sink: str, hashes: Sequence[int], at_ms: int) -> int:
        addresses = {"sink": sink, "hashes": json.dumps(list(hashes))}
        store.execute(_REMOVE_ADDRESSES, addresses)
        store.execute(_REGISTER, {**addresses, "at_ms": at_ms})
        return _unsuppress(store, SuppressionScope("sink", sink), hashes)

    @reads
    def page(self, store: Connection, query: DeadAddressQuery, after: int = 0) -> DeadAddressPage:
        first, end = query.since_ms * 1000, 2**63 - 1
        if query.newest_first:
            end = after or end
        else:
            first = max(first, after + 1)
        values = {"first": first, "end": end, "sink": query.sink, "page": PAGE}
        statement = _PAGE.replace("BY n", "BY n DESC") if query.newest_first else _PAGE

        rows = json_of(store, statement, values)
        found = [DeadAddress(row[1], row[2], row[0] // 1000, *row[3:]) for row in rows]
        return DeadAddressPage(found, rows[-1][0] if len(rows) == PAGE else 0)

    @writes
    def forget(self, store: Connection, before_ms: int, most: int) -> int:
        records = store.execute(_FORGET, (before_ms * 1000, most)).rowcount
        return records + store.execute(_FORGET_REGISTERED, (before_ms, most)).rowcount


def _not_registered(
    store: Connection, sink: str, deaths: Sequence[AddressDeath]
) -> list[AddressDeath]:
    """Return those that were not registered since they died."""
    values = {"sink": sink, "deaths": json.dumps(deaths)}
    alive = set(json_of(store, _ALIVE, values))
    return [one for one in deaths if one.hash not in alive]


def _recorded(store: Connection, sink: str, dead: Sequence[AddressDeath], at_ms: int) -> list[int]:
    """Record those that have no record; return their hashes."""
    [newest] = store.execute(_FREE, (at_ms * 1000,)).fetchone()
    first = at_ms * 1000 if newest is None else newest + 1
    values = {"sink": sink, "deaths": json.dumps(dead), "first": first}
    store.execute(_RECORD, values)
    return list(json_of(store, _RECORDED, (first, first + len(dead))))
