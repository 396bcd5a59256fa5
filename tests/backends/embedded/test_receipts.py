"""The log of receipts on files: what a crash, a full disk or damage leaves is told apart."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pushlane.backends.embedded.receipt_files import Record, records
from pushlane.backends.embedded.receipt_log import EmbeddedReceiptLog
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone, StorageFull

MIB = 1024 * 1024
LARGE = b"x" * (MIB // 4)


@asynccontextmanager
async def log_in(folder: Path, **given: object) -> AsyncIterator[EmbeddedReceiptLog]:
    """A log of one partition, opened anew."""
    options = {"receipts_partitions": 1, **given}
    log = EmbeddedReceiptLog(Settings(broker="embedded", data_dir=folder, **options))
    try:
        yield log
    finally:
        await log.close()


async def everything(log: EmbeddedReceiptLog) -> list[bytes]:
    start = await log.first()
    return await between(log, start, await log.advance(start))


async def between(log: EmbeddedReceiptLog, start: list[str], end: list[str]) -> list[bytes]:
    return [body async for page in log.read(0, start[0], end[0]) for body in page]


def newest(folder: Path) -> Path:
    return sorted((folder / "receipts" / "0").glob("*.log"))[-1]


async def fill(log: EmbeddedReceiptLog, count: int) -> None:
    """So many large bodies, each with its number in front."""
    for number in range(count):
        await log.append([bytes([number]) + LARGE])


async def append_three(log: EmbeddedReceiptLog) -> None:
    await log.append([b"one", b"two"])
    await log.append([b"three"])


@pytest.mark.parametrize("cut", [1, 5, 20])
async def test_a_torn_end_is_cut_off_and_the_next_append_goes_on_there(
    tmp_path: Path, cut: int
) -> None:
    async with log_in(tmp_path) as log:
        await append_three(log)

    os.truncate(newest(tmp_path), newest(tmp_path).stat().st_size - cut)

    async with log_in(tmp_path) as log:
        assert await everything(log) == [b"one", b"two"]
        await log.append([b"four"])
        assert await everything(log) == [b"one", b"two", b"four"]


async def test_what_was_torn_is_never_read_by_who_had_the_log_open(tmp_path: Path) -> None:
    async with log_in(tmp_path) as log:
        await append_three(log)
        with newest(tmp_path).open("ab") as file:
            file.write(b"plr1\x40\x00\x00\x00half of a record")

        await log.append([b"four"])

        assert await everything(log) == [b"one", b"two", b"three", b"four"]


async def test_a_damaged_body_is_empty_and_those_around_it_are_whole(tmp_path: Path) -> None:
    async with log_in(tmp_path) as log:
        await append_three(log)

    content = newest(tmp_path).read_bytes()
    newest(tmp_path).write_bytes(content.replace(b"two", b"twO"))

    async with log_in(tmp_path) as log:
        assert await everything(log) == [b"one", b"", b"three"]
        await log.append([b"four"])
        assert await everything(log) == [b"one", b"", b"three", b"four"]


async def test_a_damaged_head_costs_its_body_alone(tmp_path: Path) -> None:
    async with log_in(tmp_path) as log:
        await append_three(log)

    content = newest(tmp_path).read_bytes()
    at = content.index(b"two") - 20
    newest(tmp_path).write_bytes(content[:at] + b"\0" * 20 + content[at + 20 :])

    async with log_in(tmp_path) as log:
        assert await everything(log) == [b"one", b"", b"three"]


async def test_at_its_bound_a_log_drops_its_oldest(tmp_path: Path, caplog) -> None:
    async with log_in(tmp_path, receipts_max_bytes=MIB) as log:
        first = await log.first()
        await fill(log, 12)

        kept = await everything(log)
        assert [body[0] for body in kept] == list(range(12 - len(kept), 12))
        assert 3 <= len(kept) <= 5
        with pytest.raises(ReceiptsGone, match="is not kept any more"):
            await log.advance(first)
        with pytest.raises(ReceiptsGone):
            await between(log, first, await log.first())
        assert await log.kept(first) == await log.first()
        assert await log.lag(first) == len(kept)

    assert caplog.text.count("its oldest receipts are dropped") == 1


async def test_a_log_that_is_required_takes_no_more_until_some_is_committed(tmp_path: Path) -> None:
    async with log_in(tmp_path, receipts_max_bytes=MIB, receipts="required") as log:
        with pytest.raises(StorageFull, match="run `pushlane pipeline run`"):
            await fill(log, 12)
        kept = [body[0] for body in await everything(log)]
        assert kept == list(range(len(kept)))
        assert len(kept) == 4

        await log.commit(await log.advance(await log.first()))
        await log.append([b"more"])

        assert (await everything(log))[-1] == b"more"


async def test_what_is_committed_goes_when_its_retention_is_over(tmp_path: Path) -> None:
    async with log_in(tmp_path, receipts_max_bytes=2 * MIB, receipts_retention_s=0) as log:
        await fill(log, 4)
        middle = await log.advance(await log.first(), most=2)

        await log.commit(middle)

        kept = await everything(log)
        assert [body[0] for body in kept] == [2, 3]
        assert await between(log, middle, await log.advance(middle)) == kept


async def test_what_is_committed_stays_within_its_retention(tmp_path: Path) -> None:
    async with log_in(tmp_path, receipts_max_bytes=2 * MIB) as log:
        first = await log.first()
        await fill(log, 3)
        end = await log.advance(first)

        await log.commit(end)

        assert len(await between(log, first, end)) == 3


async def test_a_log_that_was_removed_is_told_from_one_that_has_nothing_new(tmp_path: Path) -> None:
    async with log_in(tmp_path) as log:
        await append_three(log)
        end = await log.advance(await log.first())
        for path in (tmp_path / "receipts" / "0").iterdir():
            path.unlink()

        with pytest.raises(ReceiptsGone, match="removed or replaced"):
            await log.advance(end)
        await log.append([b"anew"])
        assert await log.kept(end) == await log.first()
        assert await everything(log) == [b"anew"]


async def test_a_log_keeps_the_partitions_that_it_was_made_with(tmp_path: Path) -> None:
    async with log_in(tmp_path, receipts_partitions=3) as log:
        await append_three(log)

    async with log_in(tmp_path, receipts_partitions=5) as log:
        assert len(await log.first()) == 3


async def test_its_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    async with log_in(tmp_path) as log:
        await append_three(log)
        await log.secret()

    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "receipts").rglob("*")}
    assert modes == {0}


async def test_what_is_left_is_counted_without_reading_it_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []

    def told(*given: int) -> Iterator[Record]:
        for record in records(*given):
            walked.append(record)
            yield record

    monkeypatch.setattr("pushlane.backends.embedded.receipt_files.records", told)

    async with log_in(tmp_path) as log:
        start = await log.first()
        await log.append([b"body"] * 100)
        assert await log.lag(start) == 100
        further = await log.advance(start, 10)
        await log.append([b"body"] * 5)
        walked.clear()

        assert await log.lag(further) == 95
        assert len(walked) == 10 + 5
        assert await log.lag(start) == 105


async def test_what_is_left_is_counted_when_the_oldest_has_gone(tmp_path: Path) -> None:
    async with log_in(tmp_path, receipts_max_bytes=2 * MIB) as log:
        start = await log.first()
        await fill(log, 4)
        assert await log.lag(start) == 4
        await fill(log, 12)

        assert await log.first() != start
        assert await log.lag(start) == len(await everything(log))
