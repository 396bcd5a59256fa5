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
    lines = _JsonLines if form == "json" else logging.Formatter
    text = "{asctime} {levelname:<7} [{process}] {action}: {message}"
    formatter = lines(text, style="{", defaults={"action": "-"})
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pushlane").setLevel(logging.INFO)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "action": getattr(record, "action", "-"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
