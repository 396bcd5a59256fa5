"""The newest marks of keys: a row for each call, until thousands go to their table together.

A key is a hash, so each mark has a place of its own among the others: fifty new ones in `marks`
change fifty pages, and to write these takes ten times as long as all else. A row of the log is
written in one piece. Each process knows by heart which keys the log has, and looks at each call
whether that is still so; the other keys are in `marks`. Everything here is run by the store's
thread, in a transaction, which may be undone and run again.
"""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any, NamedTuple

import msgspec

from pushlane.backends.embedded.database import json_of
from pushlane.model.recipients import Mark

_ENDS = """
SELECT (SELECT min(n) FROM mark_log), (SELECT max(n) FROM mark_log),
    (SELECT stamp FROM mark_log WHERE n = ?)
"""

_ROWS = """
SELECT json_group_array(json_array(n, stamp, json(marks), forget_at_ms))
FROM (SELECT * FROM mark_log WHERE n > ? ORDER BY n)
"""

_APPEND = "INSERT INTO mark_log (n, stamp, marks, forget_at_ms) VALUES (?, ?, ?, ?)"

_IN_TABLE = """
SELECT json_group_object(value, token) FROM json_each(:keys) CROSS JOIN marks
ON marks.key = value WHERE forget_at_ms > :now_ms
"""

# Another process may have brought a later mark of the same key there meanwhile.
_TO_TABLE = """
INSERT INTO marks (key, token, holder, until_ms, forget_at_ms)
SELECT json_extract(value, '$[0]') AS logged, json_extract(value, '$[1]'), '', 0,
    json_extract(value, '$[2]')
FROM json_each(:marks) WHERE json_extract(value, '$[2]') > :now_ms ORDER BY logged
ON CONFLICT (key) DO UPDATE SET token = excluded.token, forget_at_ms = excluded.forget_at_ms
WHERE excluded.forget_at_ms > marks.forget_at_ms
"""

# The last row stays, so that no number is given twice.
_TRIM = "DELETE FROM mark_log WHERE n < ?"


LoggedMark = tuple[str, str, int]
"""A mark's key and token, and when it is to be forgotten (Unix ms)."""


class _Row(NamedTuple):
    """The marks that one call has set: tokens by key."""

    marks: dict[str, str]
    forget_at_ms: int


class MarkLog:
    """What a process knows of the log.

    It is what the log holds if that still begins with the same row, and still has the last row that
    is known, under the stamp that no other attempt to write a row has had.
    """

    def __init__(self) -> None:
        self._process = secrets.token_hex(6)
        self._stamps = itertools.count(1)
        self._first: int | None = None
        self._last = 0
        self._stamp: str | None = None
        self._rows: dict[str, _Row] = {}

    @property
    def size(self) -> int:
        """The number of keys that the log was last seen to have. Any thread may ask."""
        return len(self._rows)

    def first(
        self, store: Connection, marks: Sequence[Mark], now_ms: int, forget_at_ms: int
    ) -> list[bool]:
        """Return for each mark whether it is the first with its key; write those that are new."""
        self._catch_up(store)
        tokens = self._tokens(store, marks, now_ms)
        new = {key: token for key, token in reversed(marks) if key not in tokens}
        if not new:
            return [tokens[key] == token for key, token in marks]
        self._append(store, _Row(new, forget_at_ms))
        if len(new) == len(marks):
            return [True] * len(marks)
        tokens.update(new)
        return [tokens[key] == token for key, token in marks]

    def parts(self, store: Connection) -> tuple[int, list[list[LoggedMark]]]:
        """Return the number of the log's last row, and all marks up to that.

        They come in parts; those of a part are near each other in the table.
        """
        self._catch_up(store)
        parts: dict[str, list[LoggedMark]] = defaultdict(list)
        for key, row in self._rows.items():
            parts[key[:1]].append((key, row.marks[key], row.forget_at_ms))
        return self._last, list(parts.values())

    def _tokens(self, store: Connection, marks: Sequence[Mark], now_ms: int) -> dict[str, str]:
        """Return the token that each of the keys has, if any."""
        tokens: dict[str, str] = {}
        if not self._rows.keys().isdisjoint([key for key, _ in marks]):
            for key, _ in marks:
                row = self._rows.get(key)
                if row is not None and row.forget_at_ms > now_ms:
                    tokens[key] = row.marks[key]
        keys = _json([key for key, _ in marks if key not in tokens])
        tokens.update(json_of(store, _IN_TABLE, {"keys": keys, "now_ms": now_ms}))
        return tokens

    def _append(self, store: Connection, row: _Row) -> None:
        number, stamp = self._last + 1, f"{self._process}-{next(self._stamps)}"
        store.execute(_APPEND, (number, stamp, _json(row.marks), row.forget_at_ms))
        self._first = self._first or number
        self._add(number, stamp, row)

    def _catch_up(self, store: Connection) -> None:
        """Know what the log holds now."""
        first, last, stamp = store.execute(_ENDS, (self._last,)).fetchone()
        if (first, stamp) != (self._first, self._stamp):
            self._first, self._last, self._stamp = first, 0, None
            self._rows = {}
        if last is not None and last > self._last:
            for number, known_as, marks, forget_at_ms in json_of(store, _ROWS, (self._last,)):
                self._add(number, known_as, _Row(marks, forget_at_ms))

    def _add(self, number: int, stamp: str, row: _Row) -> None:
        self._last, self._stamp = number, stamp
        self._rows.update(dict.fromkeys(row.marks, row))


def move(store: Connection, marks: Sequence[LoggedMark], now_ms: int) -> None:
    """Write those marks to the table that are not to be forgotten yet; they stay in the log."""
    store.execute(_TO_TABLE, {"marks": _json(marks), "now_ms": now_ms})


def trim(store: Connection, last: int) -> None:
    """Delete what is before this row, now that all marks up to it are in the table.

    The row has to be one that was committed: until then another process may write its number.
    """
    store.execute(_TRIM, (last,))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
