"""Where one batch ends and the next begins.

The broker tells repeated batches by their first seq alone, so a source's batches must have the same
borders whenever they are sent again: counted from seq 1, never made by a timer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BATCH_BYTES = 1024 * 1024


def batches(bodies: Sequence[bytes], first_seq: int, size: int) -> Iterator[range]:
    """Ranges of indexes into the bodies, one for each batch.

    A batch ends after every seq that is a multiple of `size`, and before the body that would take
    it over 1 MiB (a broker takes 5 MiB at most).
    """
    start = 0
    while start < len(bodies):
        end = min(start + size - (first_seq + start - 1) % size, len(bodies))
        yield from _fitting(bodies, start, end)
        start = end


def _fitting(bodies: Sequence[bytes], start: int, end: int) -> Iterator[range]:
    total = 0
    for index in range(start, end):
        total += len(bodies[index])
        if total > BATCH_BYTES and index > start:
            yield range(start, index)
            start, total = index, len(bodies[index])
    yield range(start, end)
