"""Asks a store of receipts in one line, as tests of reports do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pushlane.pipeline.reports.answers import CountRows
from pushlane.pipeline.reports.engine import Engine
from pushlane.pipeline.reports.query import Period, Query, parse_by, parse_where
from pushlane.pipeline.reports.sections import count
from pushlane.pipeline.store import open_store
from tests.receipt_stores import MINUTE_MS, NOON_MS

PERIOD = Period(NOON_MS, NOON_MS + 120 * MINUTE_MS)
MOST = 100_000


def query(by: str = "", *where: str, period: Period = PERIOD) -> Query:
    return Query(period, parse_by(by), parse_where(where))


@contextmanager
def engine_on(root: Path, period: Period = PERIOD) -> Iterator[Engine]:
    with Engine(open_store(root), root, period) as engine:
        yield engine


def counted(root: Path, asked: Query, limit: int = MOST) -> CountRows:
    with engine_on(root, asked.period) as engine:
        return count(engine, asked, limit)
