"""What an ingest shows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pushlane import Settings
from pushlane.backends.backend import connect
from pushlane.ingest import ingest
from pushlane.ingest.metrics import INGEST_METRICS
from pushlane.util.metrics import MetricCollector
from tests.core.support import until
from tests.ingest.sources import Log, reading, value


async def test_records_by_what_became_of_them_lag_and_times(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.005)
    log = Log()
    log.add("0", value("a"), value("b"), None, b"[]")
    shown = CollectorRegistry()
    async with connect(settings) as backend:
        bad = tmp_path / "bad.jsonl"
        async with reading(backend, settings, log, "0", bad=bad) as reader:
            shown.register(MetricCollector(INGEST_METRICS, lambda: [(reader.ingest, ())]))
            await reader.read()
            log.add("0", value("c"))
            lane = reader.ingest.held["0"].partition.lane
            await until(lambda: lane.position.seen and lane.position.seen.end == 5)

            def get(name: str, **labels: str) -> float | None:
                return shown.get_sample_value(f"pushlane_ingest_{name}", labels)

            results = [get("records_total", result=r) for r in ("push", "skipped", "bad")]
            lag, has = get("lag", partition="0"), get("partitions")
            enqueued, of_source = get("enqueue_seconds_count"), get("lane_seconds_count")

    assert results == [2, 1, 1]
    assert (lag, has) == (1, 1)
    assert (enqueued, of_source) == (1, 0)  # this source has no times


async def test_what_it_waits_for_is_told(settings: Settings) -> None:
    log = Log()
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:
        nothing = reader.ingest.troubles()
        reader.source.trouble = "the broker is away"
        reader.ingest.held["0"].partition.trouble = "the store is away"

        assert nothing == []
        assert reader.ingest.troubles() == [
            "the broker is away",
            "partition 0: the store is away",
        ]
