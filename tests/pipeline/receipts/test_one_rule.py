"""The store of reports and `results`, which reads the log itself, count the same receipts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.push import Kind
from pushlane.diagnosis.ends import FirstEnds
from pushlane.diagnosis.results import row_of
from pushlane.diagnosis.results import rows_of as ends_in
from pushlane.model.counted import ENDS, FINISHED, read_receipts
from pushlane.model.receipt import Event
from pushlane.pipeline.receipts.log_source import KEY_COLUMNS, rows_of
from pushlane.pipeline.receipts.tables import find_new
from tests.pipeline.receipts.test_dedup import nothing_seen
from tests.receipt_bodies import NOON_MS, body

OUTCOMES = [*(kind.value for kind in Kind), *(event.value for event in Event)]
BODIES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.lists(st.integers(1, 6), min_size=1, max_size=5, unique=True),
        st.sampled_from(OUTCOMES),
        st.integers(0, 4),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=12,
)


@given(BODIES)
def test_of_several_receipts_of_an_end_both_count_the_same(drawn) -> None:
    bodies = [
        body(task, seqs, outcome, at_ms=NOON_MS + late_ms, attempt=attempt, reason=f"why {place}")
        for place, (task, seqs, outcome, late_ms, attempt) in enumerate(drawn)
    ]
    batches = [read_receipts(one) for one in bodies]
    ends = [row_of(batch, row) for batch in batches for row in ends_in("a", batch)]
    firsts = FirstEnds()
    for end in ends:
        firsts.add(end.seq, end.responded_at_ms)
    read = {
        (end.seq, end.outcome, end.reason)
        for end in ends
        if firsts.take(end.seq, end.responded_at_ms)
    }

    table = pa.Table.from_batches(list(rows_of(0, "0", [bodies])))
    table = table.filter(pc.greater_equal(table["kind"], FINISHED))
    left_out = find_new(table.select(KEY_COLUMNS), nothing_seen).repeats
    new = table.filter(pc.invert(pc.is_in(table["row_id"], pa.array(left_out, pa.int64()))))
    stored = {
        (row["seq"], row["outcome"], row["reason"])
        for row in new.to_pylist()
        if row["task_id"] == "a" and row["outcome"] in ENDS
    }
    assert read == stored
