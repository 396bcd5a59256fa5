"""The limiter port on SQLite: rows for tokens of rates, held places and spent totals.

A call reads the rows of all its subjects at once, decides in Python, and writes them at once.
Time is the machine's clock, which all processes on the store share.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from sqlite3 import Connection

from pushlane.backends.cells import milliseconds
from pushlane.backends.embedded.database import StorePort, json_of, reads, writes
from pushlane.backends.embedded.ledger import latest_ms
from pushlane.backends.guard_ports import (
    PlaceAsk,
    Tally,
    TokenAsk,
    TokenGrant,
    TokenReturn,
    TotalAsk,
    Usage,
)
from pushlane.backends.limiter_rules import Holding, allotted, leased, placed

_DAY_MS = 24 * 3600 * 1000

_RATES = """
SELECT json_group_object(subject, json_array(tokens, at_ms)) FROM rates
WHERE subject IN (SELECT value FROM json_each(?))
"""
_SET_RATES = """
REPLACE INTO rates (subject, tokens, at_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(?)
"""
_RETURN = """
UPDATE rates SET tokens = max(tokens, min(json_extract(value, '$[1]'), tokens +
    json_extract(value, '$[2]'))) FROM json_each(?) WHERE subject = json_extract(value, '$[0]')
"""

_PLACES = """
SELECT json_group_array(json_array(subject, holder, held, wanted, since_ms)) FROM places
WHERE subject IN (SELECT value FROM json_each(?)) AND until_ms > ? AND until_ms <= ?
"""
_SET_PLACES = """
REPLACE INTO places (subject, holder, held, wanted, since_ms, until_ms)
SELECT json_extract(value, '$[0]'), :holder, json_extract(value, '$[1]'),
    json_extract(value, '$[2]'), json_extract(value, '$[3]'), :until_ms
FROM json_each(:rows)
"""
_SWEEP_PLACES = """
DELETE FROM places WHERE subject IN (SELECT value FROM json_each(?))
    AND NOT (until_ms > ? AND until_ms <= ?)
"""

_TALLIES = """
SELECT json_group_array(json_array(tallies.subject, tallies.what, tallies.day, holder, amount))
FROM json_each(?) AS given JOIN tallies ON tallies.subject = json_extract(value, '$[0]')
    AND tallies.what = json_extract(value, '$[1]') AND tallies.day = json_extract(value, '$[2]')
"""
_SET_TALLIES = """
REPLACE INTO tallies (subject, what, day, holder, amount, at_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), :now_ms
FROM json_each(:rows)
"""
# Who has not been heard of for so long is gone, and comes back as another holder if at all.
_FOLD = """
INSERT INTO tallies (subject, what, day, holder, amount, at_ms)
SELECT subject, what, day, '', sum(amount), :now_ms FROM tallies
WHERE holder <> '' AND at_ms <= :gone_ms AND day = '' GROUP BY subject, what, day
ON CONFLICT DO UPDATE SET amount = amount + excluded.amount
"""
_DROP_FOLDED = "DELETE FROM tallies WHERE holder <> '' AND at_ms <= :gone_ms"
_DROP_DAYS = "DELETE FROM tallies WHERE day <> '' AND at_ms <= :gone_ms"

_IN_FLIGHT = """
SELECT json_group_object(subject, total) FROM (
    SELECT subject, sum(held) AS total FROM places
    WHERE subject IN (SELECT value FROM json_each(:subjects)) AND until_ms > :now_ms
        AND until_ms <= :latest_ms
    GROUP BY subject
)
"""
_SPENT = """
SELECT json_group_array(json_array(subject, what, total)) FROM (
    SELECT subject, what, sum(amount) AS total FROM tallies
    WHERE subject IN (SELECT value FROM json_each(:subjects)) AND day IN ('', :day)
    GROUP BY subject, what
)
"""
_FORGET_SUBJECTS = "DELETE FROM {} WHERE subject IN (SELECT value FROM json_each(?))"


class EmbeddedLimiter(StorePort):
    """See `guard_ports.Limiter`. What it answers to one ask is in `backends.limiter_rules`."""

    _folded_at_ms = 0

    @writes
    def lease_tokens(self, store: Connection, asks: Sequence[TokenAsk]) -> list[TokenGrant]:
        now = self._clock_ms()
        known = json_of(store, _RATES, (json.dumps([ask.subject for ask in asks]),))
        pairs = [leased(ask, known.get(ask.subject), now) for ask in asks]
        rows = [(ask.subject, *row) for ask, (_, row) in zip(asks, pairs, strict=True)]
        store.execute(_SET_RATES, (json.dumps(rows),))
        return [grant for grant, _ in pairs]

    @writes
    def return_tokens(self, store: Connection, returns: Sequence[TokenReturn]) -> None:
        store.execute(_RETURN, (json.dumps(returns),))

    @writes
    def hold_places(
        self, store: Connection, asks: Sequence[PlaceAsk], holder: str, ttl_s: float
    ) -> list[int]:
        now = self._clock_ms()
        held = (json.dumps([ask.subject for ask in asks]), now, latest_ms(now))
        store.execute(_SWEEP_PLACES, held)
        known: dict[str, dict[str, Holding]] = defaultdict(dict)
        for subject, name, *rest in json_of(store, _PLACES, held):
            known[subject][name] = Holding(*rest)
        pairs = [placed(ask, known[ask.subject], holder, now) for ask in asks]
        rows = [(ask.subject, *mine) for ask, (_, mine) in zip(asks, pairs, strict=True)]
        until_ms = now + milliseconds(ttl_s)
        values = {"rows": json.dumps(rows), "holder": holder, "until_ms": until_ms}
        store.execute(_SET_PLACES, values)
        return [places for places, _ in pairs]

    @writes
    def lease_totals(self, store: Connection, asks: Sequence[TotalAsk]) -> list[float]:
        now = self._clock_ms()
        self._fold(store, now)
        known: dict[Tally, dict[str, float]] = defaultdict(dict)
        wanted = json.dumps([ask.tally for ask in asks])
        for subject, what, day, name, amount in json_of(store, _TALLIES, (wanted,)):
            known[Tally(subject, what, day)][name] = amount
        amounts: list[float] = []
        for ask in asks:
            amounts.append(allotted(ask, known[ask.tally]))
            known[ask.tally][ask.holder] = amounts[-1]
        rows = [(*ask.tally, ask.holder, one) for ask, one in zip(asks, amounts, strict=True)]
        store.execute(_SET_TALLIES, {"rows": json.dumps(rows), "now_ms": now})
        return amounts

    @reads
    def usage(self, store: Connection, subjects: Sequence[str], day: str) -> list[Usage]:
        now, names = self._clock_ms(), json.dumps(subjects)
        held = {"subjects": names, "now_ms": now, "latest_ms": latest_ms(now)}
        in_flight = json_of(store, _IN_FLIGHT, held)
        spent: dict[str, dict[str, float]] = defaultdict(dict)
        for subject, what, total in json_of(store, _SPENT, {"subjects": names, "day": day}):
            spent[subject][what] = total
        return [Usage(in_flight.get(one, 0), spent[one]) for one in subjects]

    @writes
    def forget(self, store: Connection, subjects: Sequence[str]) -> None:
        for table in ("rates", "places", "tallies"):
            store.execute(_FORGET_SUBJECTS.format(table), (json.dumps(subjects),))

    def _fold(self, store: Connection, now: int) -> None:
        """Add up the parts of holders that are gone, and drop past days; once an hour."""
        if now < self._folded_at_ms + _DAY_MS // 24:
            return
        self._folded_at_ms = now
        store.execute(_FOLD, {"now_ms": now, "gone_ms": now - 2 * _DAY_MS})
        for statement in (_DROP_FOLDED, _DROP_DAYS):
            store.execute(statement, {"gone_ms": now - 2 * _DAY_MS})
