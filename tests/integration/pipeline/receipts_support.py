"""The receipts pipeline on a log and a store of the test's own, with the tests' Spark session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pushlane.pipeline.receipts.batch import BatchDone
from pushlane.pipeline.receipts.job import RunOptions, run
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import Snapshot, open_store
from pushlane.pipeline.store.schema import TABLES
from pushlane.settings import Settings, load


class Pipe:
    def __init__(self, spark: SparkSession, folder: Path, **settings: Any) -> None:
        self.spark = spark
        self.settings: Settings = load({"data_dir": folder / "data", **settings})
        self.notes: list[str] = []

    @property
    def root(self) -> Path:
        return self.settings.reports_root

    @property
    def snapshot(self) -> Snapshot:
        return open_store(self.root).snapshot()

    def append(self, *bodies: bytes) -> None:
        with SyncReceiptLog(self.settings) as log:
            for each in bodies:
                log.append([each])

    def run(
        self, most_bodies: int = 100, on_batch: Callable[[BatchDone], None] = lambda _: None
    ) -> list[BatchDone]:
        """Until nothing is left; the batches."""
        done: list[BatchDone] = []

        def published(batch: BatchDone) -> None:
            done.append(batch)
            on_batch(batch)

        chosen = RunOptions(
            until_idle=True,
            most_bodies=most_bodies,
            on_batch=published,
            on_note=self.notes.append,
        )
        run(self.settings, chosen, threading.Event())
        return done

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.table(table).to_pylist()

    def table(self, table: str) -> pa.Table:
        paths = open_store(self.root).files(table)
        parts = [pq.read_table(path, partitioning=None) for path in paths]
        return pa.concat_tables(part.cast(TABLES[table]) for part in parts)

    def seqs(self, task: str) -> list[int]:
        """Of the task's detail rows that finished, in order; one that came twice is there twice."""
        rows = self.rows("detail")
        found = (r["seq"] for r in rows if r["task_id"] == task and r["outcome"] != "retry")
        return sorted(found)

    def counted(self) -> Counter[tuple[str, str]]:
        """Receipts by task and outcome, as the aggregates say."""
        counts: Counter[tuple[str, str]] = Counter()
        for table in ("minutes", "hours", "days"):
            if open_store(self.root).files(table):
                for row in self.rows(table):
                    counts[row["task_id"], row["outcome"]] += row["n"]
        return counts
