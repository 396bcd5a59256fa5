"""The tables of the embedded store, and how a connection to them is set up.

Every body lies in `messages` once and never moves. A message is in exactly one of three states:
fresh (its number is over its lane's `head`), in `waiting` (delayed, or come back), or in `claims`;
in none of them it is acked, and only there because its lane is kept.
A message's id holds its lane: `lane_id << LANE_SHIFT | number`, so that a lane is one range of
ids and a claim costs the same however many lanes and messages there are.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from pushlane.core.errors import Unreachable

LANE_SHIFT = 35
"""Bits of a message id under its lane: 17 billion messages a lane, 268 million lanes."""

DELAYED = 1 << (LANE_SHIFT - 1)
"""Numbers from here on are of delayed messages: never fresh, always claimed through `waiting`."""

SCHEMA_VERSION = 2
OLDEST_SQLITE = (3, 33, 0)  # UPDATE … FROM

_TABLES = """
CREATE TABLE lanes (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    head    INTEGER NOT NULL DEFAULT 0,  -- number of the last message claimed
    tail    INTEGER NOT NULL DEFAULT 0,  -- number of the last message published
    delayed INTEGER NOT NULL DEFAULT 0,  -- how many were published with a delay
    kept    INTEGER NOT NULL DEFAULT 0,  -- whether acked messages stay, for a replay
    stamp   INTEGER NOT NULL DEFAULT 0   -- when it last got something, by the clock of `counters`
);
CREATE INDEX lanes_by_stamp ON lanes (stamp);

CREATE TABLE messages (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE waiting (
    lane_id   INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    id        INTEGER NOT NULL,
    PRIMARY KEY (lane_id, due_at_ms, id)
) WITHOUT ROWID;
CREATE TABLE claims (id INTEGER PRIMARY KEY, reader_id INTEGER NOT NULL);

CREATE TABLE owners (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE readers (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    owner   TEXT NOT NULL,
    lane_id INTEGER NOT NULL
);
CREATE INDEX readers_by_owner ON readers (owner);
CREATE INDEX readers_by_lane ON readers (lane_id);

CREATE TABLE publishers (
    lane_id  INTEGER NOT NULL,
    name     TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (lane_id, name)
) WITHOUT ROWID;
CREATE TABLE published (             -- on lanes that are kept
    first INTEGER PRIMARY KEY,       -- id of the first message of a publish
    at_ms INTEGER NOT NULL
);
CREATE TABLE dropped (lane_id INTEGER PRIMARY KEY);

CREATE TABLE tasks (
    n       INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    key     TEXT NOT NULL,
    name    TEXT NOT NULL,
    state   TEXT NOT NULL,
    version INTEGER NOT NULL,
    body    BLOB NOT NULL
);
CREATE UNIQUE INDEX tasks_by_key ON tasks (key) WHERE key <> '';
CREATE INDEX tasks_by_name ON tasks (name) WHERE name <> '';
CREATE INDEX tasks_by_state ON tasks (state);
CREATE INDEX tasks_by_version ON tasks (version);
CREATE TABLE progress (
    task_id   TEXT PRIMARY KEY,
    delivered INTEGER NOT NULL DEFAULT 0,
    dead      INTEGER NOT NULL DEFAULT 0,
    expired   INTEGER NOT NULL DEFAULT 0,
    dropped   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE seen (
    task_id TEXT NOT NULL,
    page    INTEGER NOT NULL,
    bits    BLOB NOT NULL,
    PRIMARY KEY (task_id, page)
) WITHOUT ROWID;
CREATE TABLE weights (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    high   INTEGER NOT NULL,
    medium INTEGER NOT NULL,
    low    INTEGER NOT NULL
);

CREATE TABLE leases (
    name     TEXT PRIMARY KEY,
    holder   TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    fence    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE ledger (
    task_id      TEXT NOT NULL,
    seq          INTEGER NOT NULL,
    owner        TEXT NOT NULL,  -- empty: it is confirmed
    is_unknown   INTEGER NOT NULL,  -- whether an earlier claim ran out
    until_ms     INTEGER NOT NULL,
    forget_at_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;
CREATE INDEX ledger_by_age ON ledger (forget_at_ms);

CREATE TABLE marks (
    key          TEXT PRIMARY KEY,  -- hash of a recipient
    token        TEXT NOT NULL,
    holder       TEXT NOT NULL,  -- empty: nobody is in its turn
    until_ms     INTEGER NOT NULL,
    forget_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX marks_by_age ON marks (forget_at_ms);

CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE shelf (
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE presence (
    id            TEXT PRIMARY KEY,
    expires_at_ms INTEGER NOT NULL,
    body          BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE ended (task_id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX ended_by_age ON ended (at_ms);
-- when to forget which seqs of a task were counted
CREATE TABLE fading (task_id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX fading_by_age ON fading (at_ms);
CREATE TABLE forgotten (
    task_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX forgotten_by_version ON forgotten (version);
CREATE INDEX forgotten_by_age ON forgotten (at_ms);
CREATE INDEX leases_by_age ON leases (until_ms);
CREATE TABLE beats (
    owner TEXT PRIMARY KEY,
    at_ms INTEGER NOT NULL  -- 0: it was found frozen, and has not come back
) WITHOUT ROWID;
INSERT INTO counters VALUES ('stamp', 0), ('version', 1), ('shelf', 0);
"""

# Tables that stores of 0.2.0 lack, since they were added later.
_ADDED = """
CREATE TABLE IF NOT EXISTS rates (
    subject TEXT PRIMARY KEY,
    tokens  REAL NOT NULL,  -- how many there were then; below 0 is a debt
    at_ms   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS places (  -- of in-flight caps
    subject  TEXT NOT NULL,
    holder   TEXT NOT NULL,
    held     INTEGER NOT NULL,
    wanted   INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,  -- when it last had any
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (subject, holder)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tallies (
    subject TEXT NOT NULL,
    what    TEXT NOT NULL,
    day     TEXT NOT NULL,
    holder  TEXT NOT NULL,  -- empty: all those who are gone
    amount  REAL NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (subject, what, day, holder)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counted (  -- against frequency caps
    day    INTEGER NOT NULL,  -- days since 1970
    key    INTEGER NOT NULL,  -- hash of a recipient and an app
    tokens TEXT NOT NULL,
    PRIMARY KEY (day, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS suppression_scopes (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS suppressed (
    scope_id INTEGER NOT NULL,
    hash     INTEGER NOT NULL,  -- of a recipient, or of an address at a sink
    PRIMARY KEY (scope_id, hash)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_addresses (
    n          INTEGER PRIMARY KEY,  -- microseconds since 1970 at which it was recorded, or next
    sink       TEXT NOT NULL,
    hash       INTEGER NOT NULL,
    died_at_ms INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    app        TEXT NOT NULL,
    sealed     TEXT NOT NULL  -- the address, encrypted; empty without a key
);
CREATE UNIQUE INDEX IF NOT EXISTS dead_addresses_by_hash ON dead_addresses (hash, sink);
CREATE TABLE IF NOT EXISTS registered (  -- addresses, so that they die of no older news
    hash  INTEGER NOT NULL,
    sink  TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (hash, sink)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS registered_by_age ON registered (at_ms);
CREATE TABLE IF NOT EXISTS put_off (  -- pushes that wait for their time
    task_id  TEXT NOT NULL,
    reason   TEXT NOT NULL,
    quarter  INTEGER NOT NULL,  -- quarters of an hour since 1970: when they come up again
    pushes   INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms  INTEGER NOT NULL,
    zone     TEXT NOT NULL,
    PRIMARY KEY (task_id, reason, quarter)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS put_off_by_age ON put_off (quarter);

CREATE TABLE IF NOT EXISTS mark_log (
    n            INTEGER PRIMARY KEY,
    stamp        TEXT NOT NULL,  -- of the attempt that wrote it
    marks        TEXT NOT NULL,  -- JSON: tokens by key
    forget_at_ms INTEGER NOT NULL
);
"""
# Columns of `progress` that came later: how many failed, a JSON object of the dead by reason, and
# one by outcome and reason of what expired or was dropped. Older processes name the columns that
# they use, and so leave these alone.
_ADDED_COLUMNS = {
    "failed": "ALTER TABLE progress ADD COLUMN failed INTEGER NOT NULL DEFAULT 0",
    "deaths": "ALTER TABLE progress ADD COLUMN deaths TEXT NOT NULL DEFAULT '{}'",
    "reasons": "ALTER TABLE progress ADD COLUMN reasons TEXT NOT NULL DEFAULT '{}'",
}
_ADDED_TABLES = frozenset(
    {"counted", "suppressed", "rates", "places", "tallies", "dead_addresses", "registered"}
    | {"put_off", "mark_log"}
)
_OF_0_2_0 = frozenset({"shelf", "presence", "ended", "fading", "forgotten", "beats"})
"""Tables that 0.2.0 added to the stores of versions before."""


def use_log(connection: sqlite3.Connection) -> None:
    """Have changes written to a log, so that nobody who reads waits for who writes.

    Raises OperationalError when another process does the same to a new store at this moment, for
    which SQLite does not wait, whatever its time-out.
    """
    connection.execute("PRAGMA journal_mode = WAL")


def prepare(connection: sqlite3.Connection, folder: Path) -> None:
    """Set the connection up, and make the tables if they are not there.

    Raises Unreachable when SQLite is too old, or the tables are of another version.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise Unreachable(
            f"this Python has SQLite {sqlite3.sqlite_version}, the store in {folder} needs "
            f"{'.'.join(map(str, OLDEST_SQLITE))}; use a newer Python build, or --broker pulsar://"
        )
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -16384")
    _refuse_outdated(connection, folder)
    version = _version(connection)
    if version == 0 or (version == SCHEMA_VERSION and _missing(connection)):
        _create(connection)
    if _version(connection) != SCHEMA_VERSION:
        raise Unreachable(
            f"the store in {folder} has format {_version(connection)}, and this version of "
            f"pushlane reads {SCHEMA_VERSION}; use the version that made it, or another --data-dir"
        )


def _refuse_outdated(connection: sqlite3.Connection, folder: Path) -> None:
    if _version(connection) == SCHEMA_VERSION and not _present(connection) >= _OF_0_2_0:
        raise Unreachable(
            f"the store in {folder} was made before release 0.2.0: open it once with that "
            "release, which upgrades it (pushlane tasks), or use another --data-dir"
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if _version(connection) == 0:  # another process may have been faster
        _run(connection, _TABLES)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    if _version(connection) == SCHEMA_VERSION and (missing := _missing(connection)):
        _run(connection, _ADDED)
        for column in missing.intersection(_ADDED_COLUMNS):
            connection.execute(_ADDED_COLUMNS[column])
    connection.execute("COMMIT")


def _missing(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the tables, and the columns of `progress`, that were added since 0.2.0."""
    return _ADDED_TABLES.union(_ADDED_COLUMNS) - _present(connection)


def _present(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the names of the tables, and of the columns of `progress`, that the store has."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' "
        "UNION ALL SELECT name FROM pragma_table_info('progress')"
    )
    return frozenset(name for (name,) in rows.fetchall())


def _run(connection: sqlite3.Connection, statements: str) -> None:
    for statement in re.sub("--.*", "", statements).split(";"):
        connection.execute(statement)


def bump(connection: sqlite3.Connection, counter: str) -> int:
    """Raise a counter and return its new value; inside a transaction."""
    connection.execute("UPDATE counters SET value = value + 1 WHERE name = ?", (counter,))
    return current(connection, counter)


def current(connection: sqlite3.Connection, counter: str) -> int:
    row = connection.execute("SELECT value FROM counters WHERE name = ?", (counter,)).fetchone()
    return int(row[0])
