"""The tables of the store: their columns as Arrow schemas, and the column with a row's time.

A writer gives exactly these columns, and a reader may count on them. `minutes`, `hours` and `days`
have one schema, in which `minute_ms` is the start of the minute, the hour or the day.
"""

from __future__ import annotations

import pyarrow as pa

_Columns = list[tuple[str, pa.DataType]]
_TEXT = pa.string()
_ATTRIBUTES = ("attributes", pa.map_(_TEXT, _TEXT))
WAITS = ("waits", pa.map_(_TEXT, pa.int64()))
"""The parts of a wait by cause, in ms; null where the receipt does not tell."""


def _texts(*names: str) -> _Columns:
    return [(name, _TEXT) for name in names]


def _ints(*names: str) -> _Columns:
    return [(name, pa.int32()) for name in names]


def _longs(*names: str) -> _Columns:
    return [(name, pa.int64()) for name in names]


_COUNTED = [*_longs("minute_ms"), *_texts("task_id", "app", "level", "sink", "outcome")]

RECEIPT_COLUMNS = [
    *_texts("task_id", "task_name", "app", "level", "sink"),
    *_longs("seq"),
    *_texts("outcome", "reason"),
    *_ints("attempt"),
    *_texts("recipient"),
    *_longs("recipient_hash"),
    *_ints("quota", "weight"),
    *_longs("submitted_at_ms", "eligible_at_ms", "dispatched_at_ms", "responded_at_ms"),
    *_texts("trace_id"),
    _ATTRIBUTES,
]
"""The columns of a receipt, in the log's rows and in the store, which both have `WAITS` besides."""

DETAIL = pa.schema(
    [
        *RECEIPT_COLUMNS,
        *_longs("displayed_at_ms", "clicked_at_ms"),
        ("sample_weight", pa.float64()),
        WAITS,
        *_longs("trace_hash"),
    ]
)
"""`util.trace_context` has what `trace_hash` is. Files of 0.2 end before `waits`."""
EVENTS = pa.schema(
    [*_texts("task_id"), *_longs("seq"), *_texts("outcome"), *_longs("at_ms"), _ATTRIBUTES]
)
MINUTES = pa.schema(
    [
        *_longs("minute_ms"),
        *_texts("task_id", "task_name", "app", "level", "sink", "outcome", "reason"),
        *_ints("quota", "weight"),
        *_longs("n", "wait_ms_sum"),
        ("recipients", pa.binary()),
    ]
)
LATENCY = pa.schema([*_COUNTED, *_texts("stage"), *_ints("bucket"), *_longs("n")])
ATTRIBUTES = pa.schema([*_COUNTED, *_texts("attribute", "value"), *_longs("n")])
SEEN = pa.schema([*_texts("task_id"), *_ints("kind", "bucket"), ("bits", pa.binary())])
QUARANTINE = pa.schema(
    [*_longs("at_ms"), *_ints("partition"), *_texts("position"), *_ints("bytes"), *_texts("why")]
)

TABLES: dict[str, pa.Schema] = {
    "detail": DETAIL,
    "events": EVENTS,
    "minutes": MINUTES,
    "hours": MINUTES,
    "days": MINUTES,
    "latency": LATENCY,
    "attributes": ATTRIBUTES,
    "seen": SEEN,
    "quarantine": QUARANTINE,
}

TIME_COLUMN = {
    "detail": "responded_at_ms",
    "events": "at_ms",
    **dict.fromkeys(("minutes", "hours", "days", "latency", "attributes"), "minute_ms"),
    "quarantine": "at_ms",
}
"""The column that the time range of a table's files is about; `seen` has none."""

SKETCH_LG_K = 12
"""The size of the sketches in `recipients`: only sketches of the same size can be merged."""
