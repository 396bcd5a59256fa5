"""The tables of the store: their columns as Arrow schemas, and the column with a row's time.

A writer gives exactly these columns, and a reader may count on them. `minutes`, `hours` and `days`
have one schema, in which `minute_ms` is the start of the minute, the hour or the day.
"""

from __future__ import annotations

import pyarrow as pa

_TEXTS = pa.map_(pa.string(), pa.string())
_COUNTED = [
    ("minute_ms", pa.int64()),
    ("task_id", pa.string()),
    ("app", pa.string()),
    ("level", pa.string()),
    ("sink", pa.string()),
    ("outcome", pa.string()),
]

RECEIPT_COLUMNS = [
    ("task_id", pa.string()),
    ("task_name", pa.string()),
    ("app", pa.string()),
    ("level", pa.string()),
    ("sink", pa.string()),
    ("seq", pa.int64()),
    ("outcome", pa.string()),
    ("reason", pa.string()),
    ("attempt", pa.int32()),
    ("recipient", pa.string()),
    ("recipient_hash", pa.int64()),
    ("quota", pa.int32()),
    ("weight", pa.int32()),
    ("submitted_at_ms", pa.int64()),
    ("eligible_at_ms", pa.int64()),
    ("dispatched_at_ms", pa.int64()),
    ("responded_at_ms", pa.int64()),
    ("trace_id", pa.string()),
    ("attributes", _TEXTS),
]
"""The columns of a receipt, in the log's rows and in the store."""

DETAIL = pa.schema(
    [
        *RECEIPT_COLUMNS,
        ("displayed_at_ms", pa.int64()),
        ("clicked_at_ms", pa.int64()),
        ("sample_weight", pa.float64()),
    ]
)
EVENTS = pa.schema(
    [
        ("task_id", pa.string()),
        ("seq", pa.int64()),
        ("outcome", pa.string()),
        ("at_ms", pa.int64()),
        ("attributes", _TEXTS),
    ]
)
MINUTES = pa.schema(
    [
        ("minute_ms", pa.int64()),
        ("task_id", pa.string()),
        ("task_name", pa.string()),
        ("app", pa.string()),
        ("level", pa.string()),
        ("sink", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("quota", pa.int32()),
        ("weight", pa.int32()),
        ("n", pa.int64()),
        ("wait_ms_sum", pa.int64()),
        ("recipients", pa.binary()),
    ]
)
LATENCY = pa.schema([*_COUNTED, ("stage", pa.string()), ("bucket", pa.int32()), ("n", pa.int64())])
ATTRIBUTES = pa.schema(
    [*_COUNTED, ("attribute", pa.string()), ("value", pa.string()), ("n", pa.int64())]
)
SEEN = pa.schema(
    [
        ("task_id", pa.string()),
        ("kind", pa.int32()),
        ("bucket", pa.int32()),
        ("bits", pa.binary()),
    ]
)
QUARANTINE = pa.schema(
    [
        ("at_ms", pa.int64()),
        ("partition", pa.int32()),
        ("position", pa.string()),
        ("bytes", pa.int32()),
        ("why", pa.string()),
    ]
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
    "minutes": "minute_ms",
    "hours": "minute_ms",
    "days": "minute_ms",
    "latency": "minute_ms",
    "attributes": "minute_ms",
    "quarantine": "at_ms",
}
"""The column that the time range of a table's files is about; `seen` has none."""

STAGES = {
    "wait": ("eligible_at_ms", "dispatched_at_ms"),
    "delivery": ("dispatched_at_ms", "responded_at_ms"),
    "total": ("submitted_at_ms", "responded_at_ms"),
}
"""The stages of a push in `latency`, each with the times at which it starts and ends."""

LATENCY_BASE = 1.1
"""Bucket b of `latency` holds milliseconds in [1.1^b, 1.1^(b+1)); bucket -1 is below 1 ms."""

SKETCH_LG_K = 12
"""The size of the sketches in `recipients`: only sketches of the same size can be merged."""
