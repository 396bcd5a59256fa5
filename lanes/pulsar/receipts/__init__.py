"""The receipts port on a partitioned topic of a namespace of its own."""

from __future__ import annotations

from pushlane.lanes.pulsar.receipts.log import PulsarReceiptLog

__all__ = ["PulsarReceiptLog"]
