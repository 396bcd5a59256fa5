"""Bodies of the log as columns: what is a receipt, what is set aside, and the mark at the end."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from pushlane.core.errors import UnknownFormat
from pushlane.model.counted import CLICKED, FINISHED, RETRIED
from pushlane.model.receipt import decode_receipts, encode_receipts, waits_of
from pushlane.pipeline.receipts.log_source import MARK, QUARANTINED, ROWS, dedup_keys_of, rows_of
from tests.receipt_bodies import NOON_MS, body


def rows(*pages):
    batches = list(rows_of(3, "5", pages))
    assert all(batch.schema.equals(ROWS) for batch in batches)
    return pa.Table.from_batches(batches).to_pylist()


def test_receipts_are_rows_with_the_labels_of_their_task():
    first, second, _ = rows([body("a", [7, 8], "dead", reason="gone", attributes={"v": "1"})])
    assert (first["task_id"], first["task_name"], first["app"]) == ("a", "the a", "shop")
    assert (first["seq"], second["seq"]) == (7, 8)
    assert (first["outcome"], first["reason"], first["kind"]) == ("dead", "gone", FINISHED)
    assert (first["responded_at_ms"], first["attributes"]) == (NOON_MS, [("v", "1")])
    assert (first["trace_id"], second["row_id"] - first["row_id"]) == ("", 1)


def test_parts_of_waits_are_a_map_and_what_is_not_told_is_null():
    told = body("a", [1, 2, 3], waits={"quiet": 300, "slot": 100, "keys": 0})
    batch = decode_receipts(told)
    parts = {"quiet": [300, 0, 0], "slot": [100, 400, 0], "gravity": [0, 0, 0]}
    mixed = encode_receipts(msgspec.structs.replace(batch, waits=parts))
    at_once = msgspec.structs.replace(batch, dispatched_at_ms=batch.submitted_at_ms, waits={})
    never = msgspec.structs.replace(at_once, dispatched_at_ms=[0, 0, 0])
    bodies = [told, mixed, encode_receipts(at_once), encode_receipts(never), body("a", [4])]

    found = [row["waits"] for row in rows(bodies)[:-1]]

    both = [("quiet", 300), ("slot", 100)]
    assert found[:3] == [both] * 3
    assert found[3:6] == [both, [("slot", 400)], None]
    assert found[6:] == [[], [], [], None, None, None, None]
    read = [decode_receipts(one) for one in bodies]
    assert found == [
        None if (one := waits_of(batch, row)) is None else list(one.items())
        for batch in read
        for row in range(len(batch))
    ]


def test_a_range_ends_with_how_many_bodies_it_had():
    mark = rows([body("a", [1])], [body("a", [2]), b"?"])[-1]
    assert (mark["kind"], mark["partition"], mark["bytes"]) == (MARK, 3, 3)


def test_kinds_that_count_for_themselves_are_told_apart():
    outcomes = [("delivered", 1), ("retry", 1), ("retry", 2), ("clicked", 0)]
    found = rows([body("a", [1], outcome, attempt=n) for outcome, n in outcomes])
    kinds = [row["kind"] for row in found[:-1]]
    assert kinds == [FINISHED, RETRIED + 1, RETRIED + 2, CLICKED]


def test_an_attempt_that_a_foreign_writer_made_large_spoils_no_body():
    found = rows([body("a", [seq], "retry", attempt=n) for seq, n in ((1, 5_000), (2, 2**31 - 1))])
    assert [row["attempt"] for row in found[:-1]] == [5_000, 2**31 - 1]

    read = [row["kind"] for row in found[:-1]]
    kept = next(dedup_keys_of(pa.Table.from_pylist(found[:-1], schema=ROWS)))["kind"].to_pylist()
    assert read == kept == [RETRIED + 4_000, RETRIED + 4_000]


def test_rows_are_numbered_through_all_pages():
    found = rows([body("a", [1, 2])], [body("a", [3])])
    ids = [row["row_id"] for row in found[:-1]]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 0}, "receipts of version 0; this reads 1"),
        ({"outcome": ["lost"]}, "receipts with an unknown outcome"),
        ({"seq": [0]}, "receipts with a seq out of range"),
        ({"seq": [2**32]}, "receipts with a seq out of range"),
        ({"attempt": [-1]}, "receipts with an attempt out of range"),
        ({"attempt": [2**31]}, "a value out of range"),
        ({"quota": [2**40]}, "a value out of range"),
        ({"waits": {"slot": [2**64 - 1]}}, "a value out of range"),
    ],
)
def test_a_body_that_cannot_be_used_is_set_aside_with_its_place(change, why):
    bad = encode_receipts(msgspec.structs.replace(decode_receipts(body("a", [1])), **change))
    good, found, _ = rows([body("a", [1]), bad])
    assert good["kind"] == FINISHED
    assert (found["kind"], found["why"], found["position"]) == (QUARANTINED, why, "5+1")
    assert found["bytes"] == len(bad)


def test_a_range_with_a_batch_of_a_higher_version_is_not_read():
    newer = encode_receipts(msgspec.structs.replace(decode_receipts(body("a", [1])), version=2))
    other = msgspec.msgpack.encode([3, {"columns": b"of another kind"}])

    for later in (newer, other):
        with pytest.raises(UnknownFormat, match=r"receipts log has format [23].*upgrade"):
            rows([body("a", [1]), later])
