"""The spool of one task: what a cut, a flipped byte or a restart may do to it."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pushlane.core.errors import UnknownFormat
from pushlane.core.task import Level, Task
from pushlane.producers.outbox.spool import Spool, SpoolFolder, pack, scan
from pushlane.producers.outbox.store import Batch, Header

ROOM = 1_000_000
HEADER = Header(Task(id="t", level=Level.HIGH, lane="task-t"), 10)

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def batches_of(counts: list[int]) -> list[Batch]:
    """Consecutive batches with so many pushes each."""
    batches, seq = [], 1
    for count in counts:
        batches.append(Batch(seq, [b"push %d" % number for number in range(seq, seq + count)]))
        seq += count
    return batches


BATCHES = batches_of([3, 1, 2, 4, 2, 3])


@contextmanager
def opened(folder: Path, segment_bytes: int = ROOM) -> Iterator[Spool]:
    spool = Spool(folder, HEADER, lambda path: path.rename(f"{path}.corrupt"), segment_bytes)
    try:
        yield spool
    finally:
        spool.close()


def fill(folder: Path, batches: list[Batch], segment_bytes: int = ROOM) -> None:
    with opened(folder, segment_bytes) as spool:
        assert spool.append(batches, ROOM) == len(batches)


def sent_by(spool: Spool) -> list[Batch]:
    """All that it hands out, each acked before the next."""
    found = []
    while batches := spool.next():
        spool.ack(batches[0])
        found.append(batches[0])
    return found


def read_from(folder: Path) -> list[Batch]:
    with opened(folder) as spool:
        return sent_by(spool)


def only_segment(folder: Path) -> Path:
    [path] = folder.glob("*.segment")
    return path


@given(counts=sizes, segment_bytes=st.integers(1, 300))
def test_batches_come_back_in_order_after_a_restart(counts: list[int], segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), batches_of(counts), segment_bytes)

        assert read_from(Path(folder)) == batches_of(counts)


@given(counts=sizes, left=st.floats(0, 1))
def test_a_cut_of_the_tail_leaves_a_prefix(counts: list[int], left: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, batches_of(counts))
        path = only_segment(folder)
        os.truncate(path, int(path.stat().st_size * left))

        with opened(folder) as spool:
            found = sent_by(spool)

            assert found == batches_of(counts)[: len(found)]
            assert spool.next_seq == (found[-1].last_seq + 1 if found else 1)
            assert spool.lost == 0


@given(counts=sizes, cut=st.integers(1, 40), zeros=st.integers(0, 50))
def test_what_comes_after_a_cut_is_read_behind_the_prefix(
    counts: list[int], cut: int, zeros: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, batches_of(counts))
        path = only_segment(folder)
        os.truncate(path, max(0, path.stat().st_size - cut))
        if path.stat().st_size == 0:
            os.truncate(path, zeros)  # as a power cut may leave it

        with opened(folder) as spool:
            before = spool.next_seq
            spool.append([Batch(before, [b"later"])], ROOM)
        found = read_from(folder)

        assert found[-1] == Batch(before, [b"later"])
        assert found[:-1] == batches_of(counts)[: len(found) - 1]


@settings(max_examples=300)
@given(counts=sizes, place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_wherever_it_is(counts: list[int], place: float, bit: int) -> None:
    batches = batches_of(counts)
    data = bytearray(b"".join(map(pack, batches)))
    data[int(len(data) * place)] ^= 1 << bit

    found = list(scan(bytes(data)))

    good = [one.batch for one in found if one.batch]
    assert [one for one in found if not one.batch]
    assert not [one for one in found if one.is_torn]
    assert len(good) == len(batches) - 1
    assert good == [batch for batch in batches if batch in good]


@given(counts=sizes, place=st.floats(0, 1, exclude_max=True))
def test_no_seq_is_given_out_twice_after_a_flipped_byte(counts: list[int], place: float) -> None:
    batches = batches_of(counts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, batches)
        flip(only_segment(folder), place)

        with opened(folder) as spool:
            assert spool.next_seq > batches[-1].last_seq


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    path.write_bytes(content)


def test_a_corrupt_file_is_set_aside_and_the_rest_is_sent(tmp_path: Path) -> None:
    fill(tmp_path, BATCHES, segment_bytes=1)
    third = sorted(tmp_path.glob("*.segment"))[2]
    flip(third, 0.9)

    with opened(tmp_path) as spool:
        assert sent_by(spool) == BATCHES[:2] + BATCHES[3:]
        assert spool.lost == len(BATCHES[2].bodies)
        assert spool.published == 15 - spool.lost

    assert Path(f"{third}.corrupt").exists()


def test_a_corrupt_file_is_named_in_the_log(tmp_path: Path, caplog) -> None:
    fill(tmp_path, BATCHES)
    flip(only_segment(tmp_path), 0.5)

    read_from(tmp_path)

    [record] = caplog.records
    assert str(only_segment(tmp_path)) in record.getMessage()


def test_what_was_acked_is_not_sent_again_after_a_restart(tmp_path: Path) -> None:
    fill(tmp_path, BATCHES)
    with opened(tmp_path) as spool:
        for batch in spool.next()[:2]:
            spool.ack(batch)

    with opened(tmp_path) as spool:
        assert sent_by(spool) == BATCHES[2:]
        assert spool.published == 15


def test_the_first_batches_are_the_same_until_they_are_acked(tmp_path: Path) -> None:
    fill(tmp_path, BATCHES)
    with opened(tmp_path) as spool:
        first = spool.next()
        spool.append([Batch(16, [b"later"])], ROOM)

        assert spool.next() == first == BATCHES


def test_files_go_once_all_of_them_is_acked(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=1) as spool:
        spool.append(BATCHES, ROOM)
        before = spool.bytes

        sent_by(spool)

        assert before > spool.bytes
        assert len(list(tmp_path.glob("*.segment"))) == 1


def test_seqs_go_on_when_all_was_sent_before_the_restart(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=1) as spool:
        spool.append(BATCHES, ROOM)
        sent_by(spool)
    (tmp_path / "sent").unlink()

    with opened(tmp_path) as spool:
        assert spool.next_seq == 16


def test_it_takes_no_more_than_it_may(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=1) as spool:
        most = len(pack(BATCHES[0])) + len(pack(BATCHES[1]))

        assert spool.append(BATCHES, most) == 2
        assert spool.append(BATCHES[2:], most) == 0

        sent_by(spool)
        assert spool.append(BATCHES[2:], most) >= 1


def test_nothing_is_handed_out_before_it_is_synced(tmp_path: Path, monkeypatch) -> None:
    fsync, synced = os.fsync, []

    def recorded(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        fsync(handle)

    with opened(tmp_path) as spool:
        monkeypatch.setattr("pushlane.producers.outbox.spool.os.fsync", recorded)
        spool.append(BATCHES[:1], ROOM)
        assert synced == []

        spool.next()

        assert synced == [len(pack(BATCHES[0]))]


def test_a_disk_that_is_full_leaves_no_half_record(tmp_path: Path, monkeypatch) -> None:
    with opened(tmp_path) as spool:
        spool.append(BATCHES[:2], ROOM)

        def half(handle: int, content: bytes, offset: int) -> None:
            os.pwrite(handle, content[: len(content) // 2], offset)
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("pushlane.util.files.write_all", half)
            with pytest.raises(OSError, match="No space"):
                spool.append(BATCHES[2:], ROOM)
        spool.append(BATCHES[2:], ROOM)

        assert sent_by(spool) == BATCHES


class Disk:
    """Remembers of each file what was synced: all that a power cut leaves."""

    def __init__(self) -> None:
        self._synced: dict[str, bytes] = {}
        self._fsync = os.fsync

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        if os.path.isfile(path):
            self._synced[path] = Path(path).read_bytes()

    def cut_power(self, folder: Path) -> None:
        for path in folder.iterdir():
            path.write_bytes(self._synced.get(str(path), b""))


steps = st.lists(st.sampled_from(["append", "append", "send", "sync"]), max_size=30)


@given(steps=steps, segment_bytes=st.integers(1, 200))
def test_after_a_power_cut_no_seq_that_was_sent_is_given_out_again(
    steps: list[str], segment_bytes: int
) -> None:
    disk, sent = Disk(), {}
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name).resolve()
        patch.setattr("os.fsync", disk.fsync)
        spool = Spool(folder, HEADER, lambda path: path, segment_bytes)
        for step in steps:
            if step == "append":
                spool.append([Batch(spool.next_seq, [b"one", b"two"])], ROOM)
            elif step == "sync":
                spool.sync()
            elif batches := spool.next():
                sent[batches[0].first_seq] = batches[0]
                spool.ack(batches[0])
        disk.cut_power(folder)
        spool.close()

        with opened(folder) as after:
            assert after.next_seq > max((batch.last_seq for batch in sent.values()), default=0)
            again = sent_by(after)

        assert [sent[batch.first_seq] for batch in again if batch.first_seq in sent] == [
            batch for batch in again if batch.first_seq in sent
        ]
        assert len({*sent, *(batch.first_seq for batch in again)}) * 2 == after.published


def newer(record: bytes) -> bytes:
    """As a later format begins: its number in the magic, and a head whose checksum holds."""
    head = b"PLR3" + record[4:20]
    return head + struct.pack("<I", zlib.crc32(head)) + record[24:]


@pytest.mark.parametrize("place", [0, 1], ids=["first", "behind another"])
def test_a_spool_that_a_newer_version_wrote_is_left_as_it_is(tmp_path: Path, place: int) -> None:
    fill(tmp_path, BATCHES[:1])
    path = only_segment(tmp_path)
    record = path.read_bytes()
    content = record * place + newer(record)
    path.write_bytes(content)

    with pytest.raises(UnknownFormat, match="format 3"), opened(tmp_path):
        pass

    assert path.read_bytes() == content
    assert [path] == [*tmp_path.glob("*segment*")]


@pytest.mark.parametrize(
    "change",
    [{"format": 3}, {"task": {"id": "t", "level": "urgent", "lane": "x"}}, {"batch": "large"}],
)
def test_a_task_that_a_newer_version_spooled_is_named_and_left(tmp_path, caplog, change) -> None:
    folder = SpoolFolder(tmp_path)
    folder.begin(HEADER, BATCHES)
    folder.begin(replace(HEADER, task=replace(HEADER.task, id="u")), BATCHES)
    folder.close()
    head = tmp_path / "t" / "task.json"
    head.write_bytes(msgspec.json.encode({**msgspec.json.decode(head.read_bytes()), **change}))
    before = {path: path.read_bytes() for path in (tmp_path / "t").iterdir()}

    again = SpoolFolder(tmp_path)
    again.close()

    assert [spool.header.task.id for spool in again.spools] == ["u"]
    assert again.corrupt == []
    assert {path: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before
    [told] = [r for r in caplog.records if r.levelname == "ERROR"]
    assert str(tmp_path / "t") in told.getMessage()
    assert "upgrade" in told.getMessage()
