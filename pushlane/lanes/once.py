"""Logs once of each thing that this version cannot read it, however often it comes by."""

from __future__ import annotations

import logging

from pushlane.core.errors import UnknownFormat


class Once:
    """Remembers the names it has logged, for as long as the process lives."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: set[str] = set()

    def tell(self, name: str, error: UnknownFormat) -> None:
        if name not in self._told:
            self._told.add(name)
            self._log.warning("%s", error, extra={"action": "format_unknown"})
