"""Which receipts are new: bitmaps of what was seen, in memory and in files."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.pipeline.receipts.tables import (
    SEQ_BITS,
    DedupGroup,
    Seen,
    bitmaps,
    find_new,
    nothing_seen,
    seen_rows,
)


def rows(*keys, ids=None, times=None):
    tasks, kinds, seqs = zip(*keys, strict=True)
    return pa.table(
        {
            "row_id": pa.array(ids or range(len(keys)), pa.int64()),
            "task_id": pa.array(tasks),
            "kind": pa.array(kinds, pa.int32()),
            "seq": pa.array(seqs, pa.int64()),
            "responded_at_ms": pa.array(times or [0] * len(keys), pa.int64()),
        }
    )


def taken(batches, seen=None):
    """The row ids that count, batch by batch, with what was published in between."""
    seen = seen or Seen()
    found = []
    for batch in batches:
        result = find_new(batch, partial(seen.of, files=[]))
        seen.add(result.whole)
        found.append(sorted(set(batch["row_id"].to_pylist()) - set(result.repeats.tolist())))
    return found


def seqs_of(group, bits):
    places = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    return (places + (group.bucket << SEQ_BITS)).tolist()


def test_of_a_batch_the_earliest_counts():
    batch = rows(("a", 0, 1), ("a", 0, 1), ("a", 0, 1), times=[30, 10, 20])
    assert taken([batch]) == [[1]]


def test_of_one_time_the_first_row_counts():
    batch = rows(("a", 0, 1), ("a", 0, 2), ("a", 0, 1), ids=[5, 4, 3])
    assert taken([batch]) == [[3, 4]]


def test_what_was_seen_in_an_earlier_batch_counts_no_more():
    assert taken([rows(("a", 0, 1)), rows(("a", 0, 1), ("a", 0, 2))]) == [[0], [1]]


def test_kinds_and_tasks_are_told_apart():
    batch = rows(("a", 0, 1), ("b", 0, 1), ("a", 1, 1), ("a", 4, 1), ("a", 5, 1))
    assert taken([batch]) == [[0, 1, 2, 3, 4]]


def test_seqs_at_the_edges_of_buckets_are_told_apart():
    edges = [1, 32_767, 32_768, 32_769, 65_535, 65_536, 2**32 - 1]
    batch = rows(*(("a", 0, seq) for seq in edges))
    assert taken([batch, batch]) == [list(range(len(edges))), []]


def test_bits_go_to_rows_and_back():
    seqs = [1, 9, 32_767, 40_000]
    found = find_new(rows(*(("a", 0, seq) for seq in seqs)), nothing_seen)
    back = [seq for group, bits in bitmaps(seen_rows(found.fresh)) for seq in seqs_of(group, bits)]
    assert back == seqs


def test_a_small_task_takes_few_bytes():
    found = find_new(rows(("a", 0, 1)), nothing_seen)
    assert found.fresh[DedupGroup("a", 0, 0)].nbytes == 1


def test_what_memory_forgot_is_read_from_the_files(tmp_path):
    first = rows(("a", 0, 1), ("b", 0, 7))
    found = find_new(first, nothing_seen)
    path = str(tmp_path / "seen.parquet")
    pq.write_table(seen_rows(found.fresh), path)
    tiny = Seen(kept_bytes=0)
    tiny.add(found.whole)
    again = find_new(rows(("b", 0, 7), ("b", 0, 8), ("c", 0, 1)), partial(tiny.of, files=[path]))
    assert again.repeats.tolist() == [0]


IDENTITIES = st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1, 4]), st.integers(1, 70_000))


@settings(deadline=None)
@given(st.lists(st.lists(IDENTITIES, min_size=1, max_size=20), min_size=1, max_size=5))
def test_each_identity_counts_exactly_once(batches):
    seen = Seen()
    counted = []
    for batch in batches:
        found = find_new(rows(*batch), partial(seen.of, files=[]))
        seen.add(found.whole)
        repeats = set(found.repeats.tolist())
        counted += [each for place, each in enumerate(batch) if place not in repeats]
    assert sorted(counted) == sorted({each for batch in batches for each in batch})
