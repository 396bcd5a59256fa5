"""The receipts port on files beside the embedded database."""

from __future__ import annotations

from pushlane.lanes.embedded.receipts.log import EmbeddedReceiptLog

__all__ = ["EmbeddedReceiptLog"]
