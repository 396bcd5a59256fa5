"""The last seqs of keys, kept with a spool: each push knows the one before it, whatever happens."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pushlane.core.errors import UnknownFormat
from pushlane.core.task import Level, Task
from pushlane.producers.outbox import spool as spool_module
from pushlane.producers.outbox.buffer import Buffer
from pushlane.producers.outbox.spool import Spool, pack, scan
from pushlane.producers.outbox.store import IN_ORDER, Batch, Header, ProducerOptions
from pushlane.producers.predecessors import Predecessors, bucket_of

ROOM = 1_000_000
TASK = Task(id="t", level=Level.HIGH, lane="task-t", ordered=True)
HEADER = Header(TASK, 3, format=IN_ORDER)
KEYS = ["a", "b", "c", ""]


class Killed(Exception):
    """The process was killed at this call."""


class Disk:
    """Remembers of each file what was synced; a kill comes at the sync after so many."""

    def __init__(self) -> None:
        self._synced: dict[str, bytes] = {}
        self._fsync = os.fsync
        self.syncs_left: int | None = None

    def fsync(self, handle: int) -> None:
        if self.syncs_left is not None:
            self.syncs_left -= 1
            if self.syncs_left < 0:
                raise Killed
        self._fsync(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_file():
            name = path.name.split(".")[1] if path.name.startswith(".") else path.name
            self._synced[name] = path.read_bytes()  # a hidden file is about to get this name

    def cut_power(self, folder: Path) -> None:
        for path in folder.iterdir():
            path.write_bytes(self._synced.get(path.name, b""))


def body(key: str, seq: int, after_seq: int) -> bytes:
    return f"{key} {seq} {after_seq}".encode()


class Application:
    """A producer's buffer and spool, and a broker that keeps what was sent to it."""

    def __init__(self, folder: Path, segment_bytes: int, disk: Disk) -> None:
        self.folder, self.disk = folder, disk
        self._segment_bytes = segment_bytes
        self.lane: dict[int, bytes] = {}
        self._open()

    def push(self, key: str) -> None:
        self.buffer.put(lambda seq, after_seq: body(key, seq, after_seq), 0.0, key)

    def push_and_keep(self, key: str) -> None:
        self.push(key)
        self.keep()

    def keep(self) -> None:
        self.buffer.flush()
        self.spool.append(self.buffer.cut(), ROOM)

    def send(self) -> None:
        if batches := self.spool.next():
            batch = batches[0]
            for seq, sent in enumerate(batch.bodies, start=batch.first_seq):
                assert self.lane.setdefault(seq, sent) == sent
            self.spool.ack(batch)

    def sync(self) -> None:
        self.spool.sync()

    def kill(self) -> None:
        self._restart()

    def cut_power(self) -> None:
        self._restart(with_power_cut=True)

    def _restart(self, *, with_power_cut: bool = False) -> None:
        """Lose what is in memory, and with a cut what was not synced."""
        self.disk.syncs_left = None
        if with_power_cut:
            self.disk.cut_power(self.folder)
        self.spool.close()
        self._open()

    def _open(self) -> None:
        self.spool = Spool(self.folder, HEADER, lambda path: path, self._segment_bytes)
        self.buffer = Buffer(
            ProducerOptions(linger_s=0.0),
            HEADER.batch,
            self.spool.next_seq,
            lambda: None,
            self.spool.acked_seq,
            predecessors=self.spool.predecessors.copy(),
        )


def assert_in_order(lane: dict[int, bytes]) -> None:
    latest: dict[str, int] = {}
    for seq, sent in sorted(lane.items()):
        key, own, after = sent.decode().split(" ")
        assert int(own) == seq
        assert int(after) == (latest.get(key, 0) if key else 0)
        latest[key] = seq


pushes = st.sampled_from(KEYS).map(lambda key: ("push", key))
kept = st.sampled_from(KEYS).map(lambda key: ("push_and_keep", key))
others = st.sampled_from(["keep", "send", "send", "sync", "kill", "cut_power"])
steps = st.lists(
    st.one_of(pushes, kept, kept, others.map(lambda name: (name, ""))), min_size=20, max_size=60
)


@settings(max_examples=4 * settings.default.max_examples)
@given(steps=steps, segment_bytes=st.sampled_from([1, 60, 200]), kills=st.lists(st.integers(0, 6)))
def test_each_push_goes_after_the_one_before_it_of_its_key(
    steps: list[tuple[str, str]], segment_bytes: int, kills: list[int]
) -> None:
    """Over restarts, power cuts, and kills at any sync, also within the end of a file."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        disk = Disk()
        patch.setattr("os.fsync", disk.fsync)
        patch.setattr("pushlane.producers.predecessors._BUCKETS", 64)  # each key has its own still
        application = Application(Path(name).resolve(), segment_bytes, disk)
        for number, (step, key) in enumerate(steps):
            if disk.syncs_left is None and kills:
                disk.syncs_left = kills.pop()
            try:
                getattr(application, step)(*([key] if step.startswith("push") else []))
            except Killed:
                (application.cut_power if number % 2 else application.kill)()
        disk.syncs_left = None
        application.keep()
        while application.spool.waiting:
            application.send()

        assert_in_order(application.lane)
        assert application.spool.lost == 0
        application.spool.close()


@contextmanager
def opened(folder: Path, header: Header = HEADER, segment_bytes: int = 1) -> Iterator[Spool]:
    spool = Spool(folder, header, lambda path: path.rename(f"{path}.corrupt"), segment_bytes)
    try:
        yield spool
    finally:
        spool.close()


def batch(seq: int, key: str) -> Batch:
    return Batch(seq, [b"x"], ((bucket_of(key), seq),))


def test_it_is_known_after_the_files_of_the_pushes_are_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append([batch(1, "a"), batch(2, "b"), batch(3, "a"), Batch(4, [b"x"])], ROOM)
        while batches := spool.next():
            spool.ack(batches[0])
    assert len(list(tmp_path.glob("*.segment"))) == 1

    with opened(tmp_path) as spool:
        assert [spool.predecessors.of(key) for key in "abc"] == [3, 2, 0]


def test_it_is_synced_with_its_batch_and_costs_no_sync_of_its_own(tmp_path, monkeypatch) -> None:
    synced = []
    with opened(tmp_path, segment_bytes=ROOM) as spool:
        monkeypatch.setattr("os.fsync", synced.append)
        spool.append([batch(1, "a")], ROOM)
        assert spool.next() == [batch(1, "a")]
        assert len(synced) == 1
        monkeypatch.undo()


@pytest.mark.parametrize("damage", [b"", b"12", b"x" * 5_000])
def test_a_file_of_them_that_is_damaged_is_named_in_the_log(tmp_path, caplog, damage) -> None:
    with opened(tmp_path) as spool:
        spool.append([batch(1, "a"), batch(2, "b")], ROOM)
    (tmp_path / "order").write_bytes(damage)

    with opened(tmp_path) as spool:
        assert [spool.predecessors.of(key) for key in "ab"] == [0, 2]  # b is in the last record

    [record] = caplog.records
    assert record.getMessage().startswith(f"{tmp_path / 'order'} is corrupt")
    assert record.action == "spool_corrupt"


def test_without_order_a_spool_is_what_an_older_version_reads(tmp_path: Path) -> None:
    with opened(tmp_path, replace(HEADER, format=1)) as spool:
        spool.append([Batch(1, [b"one"]), Batch(2, [b"two"])], ROOM)

    assert not (tmp_path / "order").exists()
    for path in tmp_path.glob("*.segment"):
        assert path.read_bytes()[:4] == b"PLR1"


def test_a_record_with_them_is_of_the_next_format(monkeypatch) -> None:
    record = pack(batch(7, "a"))

    assert record[:4] == b"PLR2"
    assert [found.batch for found in scan(record)] == [batch(7, "a")]
    monkeypatch.setattr(spool_module, "FORMAT", 1)  # as version 0.2.0 reads it
    monkeypatch.setattr(spool_module, "_MAGIC_IN_ORDER", b"PLR1")
    with pytest.raises(UnknownFormat, match="format 2"):
        list(scan(record))


def test_predecessors_are_packed_whole_and_small() -> None:
    last = Predecessors()
    assert Predecessors.unpack(last.pack()).of("a") == 0
    last.add("a", 3)
    last.add("b", 2**32 - 1)

    packed = last.pack()

    assert len(packed) < 25_000
    found = Predecessors.unpack(packed)
    assert [found.of(key) for key in "abc"] == [3, 2**32 - 1, 0]
    found.add("a", 9)
    assert last.of("a") == 3


@pytest.mark.parametrize("packed", [b"", b"no", zlib.compress(b"1234"), zlib.compress(b"123")])
def test_what_was_not_packed_is_no_predecessors(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"packed|buckets|length"):
        Predecessors.unpack(packed)
