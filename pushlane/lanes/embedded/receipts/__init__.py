"""The receipts port on files beside the embedded database."""

from __future__ import annotations

from pushlane.backends.embedded.receipt_log import EmbeddedReceiptLog

__all__ = ["EmbeddedReceiptLog"]
