"""The rows of the dashboard, from what is looked at first to what explains it."""

from __future__ import annotations

from scripts.monitoring import process_rows, push_rows
from scripts.monitoring.panels import Row


def rows() -> tuple[Row, ...]:
    """Return all rows, from top to bottom."""
    return (
        Row("Is it well?", process_rows.wellness()),
        Row("Queue", push_rows.queue()),
        Row("Fairness", push_rows.fairness()),
        Row("Deliveries", push_rows.deliveries()),
        Row("Sinks", push_rows.sinks()),
        Row("Receipts and reports", process_rows.receipts()),
        Row("Rules, alerts and producers", process_rows.others()),
        Row("Processes", process_rows.processes()),
    )
