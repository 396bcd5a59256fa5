"""What devices say of pushes later, displayed or clicked: read, checked, put with the receipts."""

from __future__ import annotations
