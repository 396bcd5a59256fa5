"""Sets up log lines on stderr: text for people, JSON for machines.

Each carries an `action`, a stable word to search for, beside its message.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Literal


def set_up_logs(form: Literal["text", "json"]) -> None:
    """Show what pushlane logs from INFO up, and other libraries' warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pushlane").setLevel(logging.INFO)


def action_of(record: logging.LogRecord) -> str:
    return getattr(record, "action", "-")


def _utc(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = (
            f"{_utc(record)} {record.levelname:<7} [{record.process}] "
            f"{action_of(record)}: {record.getMessage()}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "action": action_of(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
