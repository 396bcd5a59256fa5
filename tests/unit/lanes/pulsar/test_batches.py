"""The borders of batches: what makes a repeated publish harmless."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lanes.pulsar.batches import BATCH_BYTES, batches

SIZES = st.integers(1, 40)
BODIES = st.lists(st.integers(0, BATCH_BYTES // 3).map(bytes), max_size=60)


@given(bodies=BODIES, first_seq=st.integers(1, 200), size=SIZES)
def test_every_body_is_in_one_batch_in_order(
    bodies: list[bytes], first_seq: int, size: int
) -> None:
    indexes = [index for batch in batches(bodies, first_seq, size) for index in batch]

    assert indexes == list(range(len(bodies)))


@given(bodies=BODIES, first_seq=st.integers(1, 200), size=SIZES)
def test_a_batch_crosses_no_multiple_of_its_size_and_no_byte_limit(
    bodies: list[bytes], first_seq: int, size: int
) -> None:
    for batch in batches(bodies, first_seq, size):
        first, last = first_seq + batch[0], first_seq + batch[-1]
        assert (first - 1) // size == (last - 1) // size
        assert sum(len(bodies[index]) for index in batch) <= BATCH_BYTES


@given(bodies=BODIES, size=SIZES, batches_a_chunk=st.integers(1, 5))
def test_borders_are_the_same_however_the_source_is_cut_into_chunks(
    bodies: list[bytes], size: int, batches_a_chunk: int
) -> None:
    whole = [(batch[0], batch[-1]) for batch in batches(bodies, 1, size)]

    chunk = size * batches_a_chunk
    chunked = [
        (start + batch[0], start + batch[-1])
        for start in range(0, len(bodies), chunk)
        for batch in batches(bodies[start : start + chunk], start + 1, size)
    ]

    assert chunked == whole


def test_a_body_over_the_byte_limit_travels_alone() -> None:
    bodies = [b"a", bytes(BATCH_BYTES + 1), b"c"]

    assert list(batches(bodies, 1, 32)) == [range(1), range(1, 2), range(2, 3)]
