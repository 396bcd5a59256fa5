"""The log of receipts as a worker process of Spark has it: opened once, alone, and left open."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")


from pushlane.backends.embedded.receipt_log import EmbeddedReceiptLog
from pushlane.pipeline.receipts import sync_log
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog, log_of_process
from pushlane.settings import Settings
from tests.receipt_bodies import body

DEADLINE_S = 60.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", receipts_partitions=1)


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[SyncReceiptLog]:
    """Every log that is opened."""
    found: list[SyncReceiptLog] = []
    enter = SyncReceiptLog.__enter__

    def counted(log: SyncReceiptLog) -> SyncReceiptLog:
        found.append(log)
        return enter(log)

    monkeypatch.setattr(SyncReceiptLog, "__enter__", counted)
    return found


def test_a_process_with_the_same_settings_goes_on_with_its_log(
    settings: Settings, openings: list[SyncReceiptLog]
) -> None:
    first = log_of_process(settings)

    assert log_of_process(pickle.loads(pickle.dumps(settings))) is first
    assert openings == [first]


def test_a_forked_process_opens_one_of_its_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log_of_process(settings)
    monkeypatch.setattr(sync_log.os, "getpid", lambda: -1)

    assert log_of_process(settings) is not before


def test_nothing_but_the_log_is_opened(settings: Settings) -> None:
    with SyncReceiptLog(settings) as log:
        log.append([body("a", [1])])

    assert [path.name for path in settings.data_dir.iterdir()] == ["receipts"]


def test_a_range_that_is_left_in_the_middle_is_closed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = asyncio.Event()

    async def endless(*_: object) -> AsyncIterator[list[bytes]]:
        try:
            while True:
                yield [b""]
        finally:
            closed.set()

    monkeypatch.setattr(EmbeddedReceiptLog, "read", endless)
    with SyncReceiptLog(settings) as log:
        pages = log.read(0, "0", "1")
        next(pages)
        pages.close()
        waiting = asyncio.run_coroutine_threadsafe(closed.wait(), log._loop)

        assert waiting.result(DEADLINE_S)
