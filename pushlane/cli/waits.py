"""The parts of waits as a table for people, and as a text in CSV."""

from __future__ import annotations

from collections.abc import Mapping

from pushlane.cli.render import Column
from pushlane.operations.waits import WaitPartView, label, took_text

WAIT_COLUMNS: tuple[Column[WaitPartView], ...] = (
    Column("WAITED FOR", lambda one: label(one.cause)),
    Column("PUSHES", lambda one: f"{one.n:,}", number=True),
    Column("TOTAL", lambda one: took_text(one.total_ms), number=True),
    Column("P50", lambda one: took_text(one.p50_ms), number=True),
    Column("P95", lambda one: took_text(one.p95_ms), number=True),
)


def parts_text(parts: Mapping[str, object] | None) -> str:
    """Return names with their values as one text, like `quiet=60000, share=12`."""
    return ", ".join(f"{name}={value}" for name, value in sorted((parts or {}).items()))
