"""Names that are not met on a push's way: of leases, documents, sources, and keys to use next."""

from __future__ import annotations

import re
import secrets
import time


def another_key(key: str) -> str:
    """Return a key to use when this one's task is over: `sale-2` for `sale`, `sale-3` for that."""
    stem, dash, number = key.rpartition("-")
    if dash and re.fullmatch("[1-9][0-9]{0,2}", number):
        return f"{stem}-{int(number) + 1}"
    return f"{key}-2"


RETRIED_LANE = "retried"
"""Its messages mark dead pushes that were put on a lane again."""
DEAD_LEASE = "dead"
"""The lease of a process that looks through dead pushes."""
PARTS = "submit-parts"
"""The kind of document, by task id, that says how far a submit in parts has come."""


def submit_lease(task_id: str) -> str:
    """Return the name of the lease that a submit of the task holds while it runs."""
    return f"submit-{task_id}"


def receiving_lease(task_id: str) -> str:
    """Return the name of the lease by which a task waits for lines between requests."""
    return f"receiving-{task_id}"


def fanout_lease(key: str) -> str:
    """Return the name of the lease that a fan-out of this key holds while it runs."""
    return f"fanout-{key}"


def publishers_of(task_id: str) -> list[tuple[str, str]]:
    """Return the ranges of source names that publish a task's pushes (see `core.ports.Source`)."""
    return [(f"{who}-{task_id}", f"{who}-{task_id}-~") for who in ("submit", "producer", "fanout")]


_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_task_id() -> str:
    """Return a short id that sorts by time: 8 characters of milliseconds, 6 random ones."""
    now_ms = time.time_ns() // 1_000_000
    number = now_ms * 2**30 + secrets.randbits(30)
    return "".join(_ID_ALPHABET[(number >> (5 * place)) % 32] for place in reversed(range(14)))
