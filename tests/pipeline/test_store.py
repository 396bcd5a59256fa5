"""The store of receipts: what counts, for whom, and what a crash or a damage does."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.core.errors import BadInput
from pushlane.pipeline.store import (
    CorruptStore,
    FileCounts,
    SampledBatch,
    StoreBusy,
    StoreWriter,
    open_store,
)
from pushlane.pipeline.store.manifest import batch_of
from pushlane.pipeline.store.schema import SEEN, TABLES
from pushlane.pipeline.store.writing import CHECKPOINT_EVERY, open_writer
from tests.receipt_stores import MINUTE_MS, NOON_MS, make_store

SEEN_ROWS = pa.table({"task_id": ["t"], "kind": [0], "bucket": [0], "bits": [b"1"]}).cast(SEEN)


@pytest.fixture
def root(tmp_path):
    return make_store(tmp_path / "reports", receipts=300, batches=3)


def rows_of(paths):
    return sum(pq.read_metadata(path).num_rows for path in paths)


def test_a_reader_finds_what_manifests_name(root):
    store = open_store(root)
    assert rows_of(store.files("detail")) == 300
    assert store.snapshot().tables["detail"].rows == 300
    assert store.snapshot().positions == ["300"]


def test_tables_have_the_columns_that_the_schemas_promise(root):
    store = open_store(root)
    for table in ("detail", "events", "minutes", "latency", "attributes"):
        assert pq.read_schema(store.files(table)[0]).equals(TABLES[table])


def test_files_of_a_time_are_those_that_may_hold_it(root):
    store = open_store(root)
    late = store.files("detail", since_ms=NOON_MS + 45 * MINUTE_MS)
    early = store.files("detail", until_ms=NOON_MS + 1)
    assert len(late) == len(early) == 1
    assert late != early
    assert store.files("detail", since_ms=NOON_MS + 10**9) == []


def test_minutes_add_up_to_the_detail_rows_and_events(root):
    store = open_store(root)
    counted = pa.concat_tables(pq.read_table(path) for path in store.counted())
    assert sum(counted["n"].to_pylist()) == 300 + rows_of(store.files("events"))


def test_what_was_written_but_not_published_does_not_count(root):
    with open_writer(root) as writer:
        name = writer.begin()
        writer.write("seen", SEEN_ROWS, name)
    assert open_store(root).files("seen") == []


def test_what_a_crash_left_is_thrown_away_by_the_next_batch(root):
    with open_writer(root) as writer:
        writer.write("seen", SEEN_ROWS, writer.begin())
    with open_writer(root) as writer:
        writer.publish("batch", writer.begin())
    assert open_store(root).files("seen") == []


def test_a_removed_file_stays_for_who_has_it_open(root):
    before = open_store(root)
    with open_writer(root) as writer:
        gone = [each.path for each in writer.store.entries("detail")[:1]]
        writer.publish("compact", writer.begin(), removed={"detail": gone})
    assert rows_of(before.files("detail")) == 300
    assert rows_of(open_store(root).files("detail")) == 200
    assert list(open_store(root).state.retired) == gone


def test_a_store_opens_from_its_checkpoint_and_what_came_after(tmp_path):
    root = tmp_path / "reports"
    batches = 2 * CHECKPOINT_EVERY + 3
    with open_writer(root) as writer:
        for number in range(batches):
            name = writer.begin()
            writer.write("seen", SEEN_ROWS, name)
            writer.publish("batch", name, positions=[str(number)], counts=FileCounts(receipts=2))
    snapshot = open_store(root).snapshot()
    assert snapshot.tables["seen"].files == batches
    assert snapshot.counts.receipts == 2 * batches
    assert snapshot.positions == [str(batches - 1)]
    assert len(list((root / "gen-000001" / "manifests").iterdir())) < batches


def test_only_one_process_writes(root):
    with open_writer(root), pytest.raises(StoreBusy, match="writes the store"), open_writer(root):
        pass


def test_of_two_writers_with_one_number_the_second_is_refused_and_changes_nothing(root):
    """As after a lease that was lost on a file system of the network: flock held neither off."""
    generation = open_store(root).generation
    first, second = StoreWriter(generation), StoreWriter(generation)
    first.publish("batch", first.begin(), positions=["first"])
    before = {path: path.read_bytes() for path in generation.manifests.iterdir()}

    with pytest.raises(StoreBusy, match=r"000000000004.json was written by another process"):
        second.publish("batch", second.begin(), positions=["second"])

    assert {path: path.read_bytes() for path in generation.manifests.iterdir()} == before
    assert open_store(root).snapshot().positions == ["first"]


def test_writers_of_containers_with_the_same_pid_share_no_unfinished_file(root, monkeypatch):
    """The one that was held up finds its file gone, and not what the other one wrote into it."""
    generation = open_store(root).generation
    late = StoreWriter(generation)
    link = os.link

    def held_up(source, target):
        monkeypatch.setattr(os, "link", link)
        with open_writer(root) as other:
            other.publish("batch", other.begin(), positions=["other"])
        link(source, target)

    monkeypatch.setattr(os, "link", held_up)
    with pytest.raises(StoreBusy):
        late.publish("batch", late.begin(), positions=["late"])

    assert open_store(root).snapshot().positions == ["other"]


def test_a_disk_without_hard_links_is_refused(root, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with open_writer(root) as writer, pytest.raises(BadInput, match="have no hard links"):
        writer.publish("batch", writer.begin())


def test_a_late_worker_of_a_killed_driver_adds_nothing_to_the_batch_of_the_next(root):
    with open_writer(root) as killed:
        before = killed.begin()
    with open_writer(root) as writer:
        name = writer.begin()
        writer.write("seen", SEEN_ROWS, name)
        killed.write("seen", SEEN_ROWS, before)
        writer.publish("batch", name)

    [counted] = open_store(root).files("seen")
    assert Path(counted).parent.name == f"batch={name}"


def test_what_any_name_of_a_number_has_left_is_removed_before_it_is_used(root):
    with open_writer(root) as killed:
        for name in ("000000004", killed.begin()):
            killed.write("seen", SEEN_ROWS, name)
    with open_writer(root) as writer:
        writer.begin()

    assert not list((root / "gen-000001" / "seen").iterdir())


@pytest.mark.parametrize(
    ("path", "batch"),
    [
        ("detail/day=1/hour=2/batch=000000012-ab12/part-0.parquet", 12),
        ("seen/batch=000000012/part-0.parquet", 12),
        ("seen/part-0.parquet", None),
    ],
)
def test_a_path_tells_its_batch_with_and_without_a_token(path, batch):
    assert batch_of(path) == batch


def test_a_torn_manifest_is_named_with_what_mends_it(root):
    last = sorted((root / "gen-000001" / "manifests").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:40])
    with pytest.raises(CorruptStore, match=rf"{last.name}.*pipeline replay --since"):
        open_store(root)


def test_a_missing_manifest_is_named(root):
    (root / "gen-000001" / "manifests" / "000000000002.json").unlink()
    with pytest.raises(CorruptStore, match=r"000000000002.json: this manifest is missing"):
        open_store(root)


def test_an_unfinished_manifest_is_not_seen(root):
    (root / "gen-000001" / "manifests" / ".000000000004.json.123").write_bytes(b'{"numb')
    assert open_store(root).snapshot().manifest == 3


def test_a_folder_without_a_store_is_refused(tmp_path):
    with pytest.raises(BadInput, match="holds no receipts yet"):
        open_store(tmp_path)


def test_current_that_names_nothing_is_refused(root):
    (root / "CURRENT").write_text("gen-000009")
    with pytest.raises(CorruptStore, match="gen-000009"):
        open_store(root)


def test_a_damaged_file_is_not_published(root):
    with open_writer(root) as writer:
        name = writer.begin()
        writer.write("seen", SEEN_ROWS, name)
        [path] = (root / "gen-000001" / "seen").rglob("*.parquet")
        path.write_bytes(b"PAR1")
        with pytest.raises(
            CorruptStore, match=r"part-0.parquet: this file is not a complete Parquet"
        ):
            writer.publish("batch", name)
    assert open_store(root).snapshot().manifest == 3


def test_what_a_manifest_names_is_on_the_disk_before_it(root, monkeypatch):
    synced, fsync = [], os.fsync

    def told(descriptor):
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", told)
    with open_writer(root) as writer:
        name = writer.begin()
        writer.write("seen", SEEN_ROWS, name)
        writer.publish("batch", name)

    generation = root / "gen-000001"
    file = generation / "seen" / f"batch={name}" / "part-0.parquet"
    [manifest] = [
        at for at, path in enumerate(synced) if path.name.startswith(".000000000004.json.")
    ]
    wanted = [file, file.parent, generation / "seen", generation]
    assert set(wanted) <= set(synced[:manifest])


def test_files_without_rows_are_not_left_behind(root):
    with open_writer(root) as writer:
        name = writer.begin()
        folder = writer.generation.table("latency") / f"batch={name}"
        folder.mkdir(parents=True)
        pq.write_table(TABLES["latency"].empty_table(), folder / "part-0.parquet")
        writer.publish("batch", name)
    assert not folder.exists()


def test_a_store_is_for_its_owner_alone(tmp_path):
    made = make_store(tmp_path / "reports", receipts=10)
    assert made.stat().st_mode & 0o077 == 0


def test_intervals_of_samples_go_with_the_rows_of_their_time(root):
    long_ago, now = 1_000, NOON_MS + MINUTE_MS
    given = [
        SampledBatch(1, ["0"], ["1"], long_ago, long_ago, 0.5, "fast", "restored"),
        SampledBatch(2, ["1"], ["2"], long_ago, long_ago, 0.5, "fast", "sampled"),
        SampledBatch(3, ["2"], ["3"], now, now, 0.5, "fast", "gone"),
    ]
    with open_writer(root) as writer:
        writer.publish("batch", writer.begin(), intervals=given)
        assert set(writer.state.intervals) == {1, 2, 3}
        writer.publish("compact", writer.begin())
    assert set(open_store(root).state.intervals) == {2, 3}


def test_settings_that_an_older_version_left_are_removed(root):
    (root / ".settings-0123").write_text("a token")
    with open_writer(root):
        pass
    assert list(root.glob(".settings-*")) == []
