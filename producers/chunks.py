"""Turns the accepted rows of a source into pushes: chunks of a fixed size, in file order.

Reading twice gives the same chunks: the first time to check every row, the second to publish.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from pushlane.lanes.errors import BadInput
from pushlane.producers.encoder import EncodeRow
from pushlane.producers.rows import BadRow, RowSource, Wanted

_CHUNK_ROWS = 4_096

Chunk = list[bytes]


def chunk_size(batch: int) -> int:
    """Return about 4,096 rows, rounded down to whole bundles."""
    return max(1, _CHUNK_ROWS // batch) * batch


def chunks(
    source: RowSource,
    wanted: Wanted,
    encode_row: EncodeRow,
    size: int,
    on_bad: Callable[[int, BadRow], None],
) -> Generator[Chunk, None, None]:
    """Yield encoded rows, numbered from 1; bad ones go to `on_bad` and take no number.

    Raises:
        BadInput: the file cannot be read on.
    """
    chunk: Chunk = []
    seq = 1
    try:
        for number, values in source.rows(wanted):
            packed = values if isinstance(values, BadRow) else encode_row(seq, values)
            if isinstance(packed, BadRow):
                on_bad(number, packed)
                continue
            chunk.append(packed)
            seq += 1
            if len(chunk) == size:
                yield chunk
                chunk = []
    except OSError as error:
        raise BadInput(f"{source.name} cannot be read on: {error.strerror or error}") from error
    if chunk:
        yield chunk
