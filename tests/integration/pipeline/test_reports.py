"""Reports on a store that Spark wrote: its Parquet, its sketches, its events."""

from __future__ import annotations

import pytest

from pushlane.pipeline.reports.sections import lateness, recipients
from tests.integration.pipeline.receipts_support import Pipe
from tests.receipt_bodies import NOON_MS, body
from tests.report_queries import counted, engine_on, query


@pytest.fixture
def root(spark, tmp_path):
    """3,000 recipients reached at each of two levels; some of one level's displayed it later."""
    pipe = Pipe(spark, tmp_path)
    pipe.append(
        body("a", range(1, 3_001), attributes={"version": "1.0"}),
        body("b", range(1, 3_001), level="low", at_ms=NOON_MS + 60_000),
    )
    pipe.run()
    pipe.append(body("a", range(1, 501), "displayed", at_ms=NOON_MS + 120_000))
    pipe.run()
    return pipe.root


def test_a_store_that_spark_wrote_is_reported_on(root):
    rows = counted(root, query("task,outcome")).rows
    assert {row.key: row.n for row in rows} == {
        ("a", "delivered"): 3_000,
        ("b", "delivered"): 3_000,
        ("a", "displayed"): 500,
    }
    by_version = counted(root, query("attribute:version", "outcome=displayed")).rows
    assert [(row.key, row.n) for row in by_version] == [(("1.0",), 500)]
    both = counted(root, query("attribute:version,attribute:none")).rows
    assert {row.key: row.n for row in both} == {("1.0", ""): 3_500, ("", ""): 3_000}
    with engine_on(root) as engine:
        united = recipients(engine, query())
        apart = recipients(engine, query("level"))
        [wait] = [each for each in lateness(engine, query()) if each.stage == "wait"]
    assert united[()] == pytest.approx(3_000, rel=0.033)
    assert apart[("high",)] == pytest.approx(3_000, rel=0.033)
    assert wait.quantiles_ms[0] == pytest.approx(300, rel=0.05)
