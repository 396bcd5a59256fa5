"""The ledger port on SQLite: a row for each push that is claimed or confirmed.

Claims survive a crash of the process, durable ones a power cut too. Each call deletes some of the
rows that are older than the window, so the table holds about a window's worth of pushes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence

from pushlane.backends.embedded.database import Database, StorePort, json_of, writes
from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.push import Push
from pushlane.core.task import now_ms

_LONGEST_MS = 900_000  # far more than any time to live, but for claims at a very slow sink


def latest_ms(now_ms: int, ttl_ms: int = 0) -> int:
    """Return the latest end that something can have now; those of its kind are for `ttl_ms`.

    A lease, a claim, a turn, a place or a process's word ends at a time of the wall clock. When
    that is set back while their holder is dead, the end is further away than they can last: then
    they are over. A step that is smaller keeps them for as long as it was.
    """
    return now_ms + max(_LONGEST_MS, 2 * ttl_ms)


def is_held(until_ms: int, now_ms: int) -> bool:
    """Return whether what ends at `until_ms` lasts still."""
    return now_ms < until_ms <= latest_ms(now_ms)


# Pushes come as the seqs of each task: less to read than a pair for each.
_NEW = """
INSERT INTO ledger (task_id, seq, owner, is_unknown, until_ms, forget_at_ms)
SELECT task.key, seq.value, :owner, 0, :until_ms, :forget_at_ms
FROM json_each(:pushes) AS task JOIN json_each(task.value) AS seq WHERE true
ON CONFLICT (task_id, seq) DO"""

# Nearly always no push was ever claimed, and there is nothing more to ask.
_CLAIM_NEW = f"{_NEW} NOTHING"

# Free are also pushes that are forgotten but not swept yet.
_CLAIM = f"""{_NEW} UPDATE SET
    is_unknown = CASE
        WHEN forget_at_ms <= :now_ms THEN 0
        WHEN owner = :owner THEN is_unknown
        ELSE 1
    END,
    owner = :owner, until_ms = :until_ms, forget_at_ms = :forget_at_ms
WHERE forget_at_ms <= :now_ms OR owner = :owner
    OR (owner <> '' AND (until_ms <= :now_ms OR until_ms > :latest_ms))
"""

# In this order: else all that the ledger knows of a task is compared with each push.
_RESULTS = """
SELECT json_group_object(task_id || '-' || ledger.seq, CASE
    WHEN owner = '' THEN 'confirmed'
    WHEN owner <> :owner THEN 'held'
    WHEN is_unknown THEN 'unknown'
    ELSE 'won'
END)
FROM json_each(:pushes) AS task CROSS JOIN json_each(task.value) AS seq
CROSS JOIN ledger ON task_id = task.key AND ledger.seq = seq.value
"""

# A confirmation goes when its claim would have gone: moving that time costs as much as a claim.
_CONFIRM = """
INSERT INTO ledger (task_id, seq, owner, is_unknown, until_ms, forget_at_ms)
SELECT task.key, seq.value, '', 0, 0, :forget_at_ms
FROM json_each(:pushes) AS task JOIN json_each(task.value) AS seq WHERE true
ON CONFLICT (task_id, seq) DO UPDATE SET owner = ''
"""

_RELEASE = """
DELETE FROM ledger WHERE owner = :owner AND (task_id, seq) IN (
    SELECT task.key, seq.value FROM json_each(:pushes) AS task JOIN json_each(task.value) AS seq
)
"""

# More than a call adds, so that it catches up after a rush; not all, so that no call takes long.
_SWEEP_LEDGER = """
DELETE FROM ledger WHERE (task_id, seq) IN (
    SELECT task_id, seq FROM ledger WHERE forget_at_ms <= :now_ms
    ORDER BY forget_at_ms LIMIT 2 * :count + 64
)
"""


class EmbeddedLedger(StorePort):
    """See `guard_ports.Ledger`."""

    def __init__(
        self, database: Database, window_s: float, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        super().__init__(database, clock_ms)
        self._window_ms = round(window_s * 1000)

    async def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> list[ClaimResult]:
        def job(connection: sqlite3.Connection) -> list[ClaimResult]:
            values = self._values(pushes, round(ttl_s * 1000)) | {"owner": owner}
            connection.execute(_SWEEP_LEDGER, values)
            if connection.execute(_CLAIM_NEW, values).rowcount == len(pushes):
                return [ClaimResult.WON] * len(pushes)
            connection.execute(_CLAIM, values)
            by_push = json_of(connection, _RESULTS, values)
            return [ClaimResult(by_push[push.push_id]) for push in pushes]

        return await self._database.write(job, durable=durable)

    @writes
    def confirm(self, store: sqlite3.Connection, pushes: Sequence[Push]) -> None:
        store.execute(_CONFIRM, self._values(pushes))

    @writes
    def release(self, store: sqlite3.Connection, pushes: Sequence[Push], owner: str) -> None:
        store.execute(_RELEASE, self._values(pushes) | {"owner": owner})

    def _values(self, pushes: Sequence[Push], ttl_ms: int = 0) -> dict[str, str | int]:
        now = self._clock_ms()
        seqs: dict[str, list[int]] = defaultdict(list)
        for push in pushes:
            seqs[push.task_id].append(push.seq)
        return {
            "pushes": json.dumps(seqs),
            "count": len(pushes),
            "now_ms": now,
            "until_ms": now + ttl_ms,
            "latest_ms": latest_ms(now, ttl_ms),
            "forget_at_ms": now + ttl_ms + self._window_ms,
        }
