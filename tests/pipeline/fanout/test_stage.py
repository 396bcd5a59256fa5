"""The folder of a fan-out: seqs are given when all rows are there; a cut-off freeze is none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.core.errors import BadInput, OutdatedFormat
from pushlane.core.task import Level, Task
from pushlane.pipeline.fanout.request import AudienceCounts
from pushlane.pipeline.fanout.stage import (
    FORMAT,
    FanoutStage,
    FrozenRows,
    Part,
    Signature,
    StageManifest,
    difference,
    remove_abandoned,
)
from pushlane.settings import Settings


@pytest.fixture
def stage(tmp_path: Path) -> FanoutStage:
    return FanoutStage(Settings(data_dir=tmp_path), "key")


@pytest.fixture
def frozen(stage: FanoutStage) -> FrozenRows:
    return stage.begin("t1")


BUNDLE = 2


def write(frozen: FrozenRows, number: int, pushes: int) -> str:
    """A file of so many pushes, in bundles."""
    frozen.rows.mkdir(exist_ok=True)
    name = f"part-{number:05}-x.parquet"
    sizes = [BUNDLE] * (pushes // BUNDLE) + [pushes % BUNDLE] * bool(pushes % BUNDLE)
    table = pa.table({"packed": [b""] * len(sizes), "pushes": pa.array(sizes, pa.int32())})
    pq.write_table(table, frozen.rows / name)
    return name


def manifest(parts: list[Part]) -> StageManifest:
    return StageManifest(
        task=Task(id="t1", level=Level.HIGH, lane="task-t1"),
        parts=parts,
        counts=AudienceCounts(3, 0, 0, 0, 0, 3),
        signature=Signature(files={"/a": (1, 2)}),
        audience="/a",
        where="",
        created_at_ms=1,
        format=FORMAT,
    )


def test_seqs_run_from_1_over_the_parts_in_order_of_their_names(frozen: FrozenRows) -> None:
    late, early = write(frozen, 12, 5), write(frozen, 2, 3)

    assert frozen.files() == [Part(early, 2, 1, 3), Part(late, 12, 4, 5)]


def test_an_empty_part_takes_no_seq(frozen: FrozenRows) -> None:
    write(frozen, 0, 0)
    full = write(frozen, 1, 2)

    assert frozen.files() == [Part(full, 1, 1, 2)]


def test_a_manifest_is_read_as_it_was_published(stage: FanoutStage, frozen: FrozenRows) -> None:
    published = manifest([Part("part-00000-x.parquet", 0, 1, 3)])

    stage.publish(published)

    assert stage.manifest() == published


def test_what_a_version_before_0_2_0_froze_is_refused(
    stage: FanoutStage, frozen: FrozenRows
) -> None:
    now = manifest([Part("part-00000-x.parquet", 0, 1, 3)])
    now.refuse_outdated(stage.path)
    older = msgspec.to_builtins(now) | {"head": "oQ==", "batch": 32, "format": 1}
    (stage.path / "manifest.json").write_bytes(msgspec.json.encode(older))
    found = stage.manifest()
    assert found is not None

    with pytest.raises(OutdatedFormat, match=r"is left as it is; run release 0\.2\.0"):
        found.refuse_outdated(stage.path)


def test_rows_without_a_manifest_are_thrown_away(stage: FanoutStage, frozen: FrozenRows) -> None:
    write(frozen, 0, 1)
    assert stage.manifest() is None

    stage.begin("t2")

    assert frozen.files() == []


def test_workers_that_outlive_their_driver_write_into_no_new_freeze(
    stage: FanoutStage, frozen: FrozenRows
) -> None:
    again = stage.begin("t2")

    frozen.rows.mkdir(parents=True)
    write(frozen, 0, 1)

    assert again.files() == []


def test_a_freeze_that_fails_late_leaves_that_of_the_next_driver(
    stage: FanoutStage, frozen: FrozenRows
) -> None:
    after = stage.begin("t2")
    write(after, 0, 1)
    stage.publish(manifest(after.files()))

    stage.drop("t1")

    assert stage.manifest() is not None
    assert len(after.files()) == 1


def test_a_finished_fan_out_keeps_its_manifest_alone(
    stage: FanoutStage, frozen: FrozenRows
) -> None:
    write(frozen, 0, 1)
    (frozen.progress / "1").write_text("1")
    stage.publish(manifest(frozen.files()))

    stage.drop_rows()

    assert [path.name for path in stage.path.iterdir()] == ["manifest.json"]


def test_a_part_begins_elsewhere_after_a_reconciliation(frozen: FrozenRows) -> None:
    parts = [Part("a", 0, 1, 3), Part("b", 1, 4, 5)]
    (frozen.progress / "4").write_text("5")
    assert frozen.reached(parts)[4].seq == 5

    frozen.store_starts({4: 6})

    assert frozen.starts(parts) == {1: 1, 4: 6}
    assert frozen.reached(parts) == {}


KEPT_S = 3_600.0


def aged(folder: Path, by_s: float) -> None:
    """As if nothing had been written there for so long."""
    at_s = time.time() - by_s
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (at_s, at_s))


@pytest.fixture
def keeping(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, fanout_keep_s=KEPT_S)


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "cut-off"])
def test_an_abandoned_freeze_is_removed_with_its_recipients(
    stage: FanoutStage, frozen: FrozenRows, keeping: Settings, is_whole: bool
) -> None:
    write(frozen, 0, 1)
    if is_whole:
        stage.publish(manifest(frozen.files()))
    aged(stage.path, 2 * KEPT_S)

    remove_abandoned(keeping)

    assert not stage.path.exists()


def test_a_freeze_whose_workers_still_write_stays(
    stage: FanoutStage, frozen: FrozenRows, keeping: Settings
) -> None:
    stage.publish(manifest([]))
    aged(stage.path, 2 * KEPT_S)
    (frozen.progress / "1").write_text("1")

    remove_abandoned(keeping)

    assert stage.manifest() is not None


def test_a_freeze_that_somebody_goes_on_with_stays(
    stage: FanoutStage, frozen: FrozenRows, keeping: Settings
) -> None:
    stage.publish(manifest([]))
    aged(stage.path, 2 * KEPT_S)

    stage.keep()
    remove_abandoned(keeping)

    assert stage.manifest() is not None


def test_what_holds_no_recipients_or_is_not_ours_stays(
    stage: FanoutStage, frozen: FrozenRows, keeping: Settings
) -> None:
    stage.publish(manifest([]))
    stage.drop_rows()
    foreign = stage.path.with_name("of-somebody-else") / "rows"
    foreign.mkdir(parents=True)
    aged(stage.path.parent, 2 * KEPT_S)

    remove_abandoned(keeping)

    assert stage.manifest() is not None
    assert foreign.exists()


def test_a_damaged_manifest_says_what_to_do(stage: FanoutStage, frozen: FrozenRows) -> None:
    (stage.path / "manifest.json").write_text("{")

    with pytest.raises(BadInput, match="is damaged; cancel the task"):
        stage.manifest()


def test_the_stage_is_for_its_owner_alone(stage: FanoutStage, frozen: FrozenRows) -> None:
    assert stage.path.stat().st_mode & 0o077 == 0


def test_each_key_and_each_backend_has_a_folder_of_its_own(tmp_path: Path) -> None:
    here, other = Settings(data_dir=tmp_path), Settings(data_dir=tmp_path / "b")
    shared = {"fanout_dir": tmp_path / "s"}
    paths = {
        FanoutStage(settings.but(**shared), key).path
        for settings in (here, other)
        for key in ("a", "b")
    }

    assert len(paths) == 4


def files(**stamps: tuple[int, int]) -> Signature:
    return Signature(files={f"/data/{name}": stamp for name, stamp in stamps.items()})


def test_equal_audiences_do_not_differ() -> None:
    assert difference(files(a=(1, 2)), files(a=(1, 2))) == ""


def test_a_difference_names_the_files() -> None:
    found = difference(files(a=(1, 1), b=(1, 1), c=(1, 1)), files(b=(1, 2), c=(1, 1), d=(1, 1)))

    assert found == "1 added (d), 1 removed (a), 1 changed (b)"


def test_a_difference_of_a_table_is_its_rows() -> None:
    found = difference(Signature(rows=5, hash="a"), Signature(rows=7, hash="b"))

    assert found == "it had 5 rows and has 7 now"


def test_a_table_of_as_many_rows_can_differ() -> None:
    found = difference(Signature(rows=5, hash="a"), Signature(rows=5, hash="b"))

    assert found == "of its 5 rows some have changed"
