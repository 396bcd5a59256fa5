"""Reads what devices report of pushes (displayed, clicked), and puts it with the receipts."""

from __future__ import annotations
