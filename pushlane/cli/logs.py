"""Sets up log lines on stderr: text for people, JSON for machines.

Each carries an `action`, a stable word to search for, beside its message; one about a push has the
ids of that and of its trace. No line has the text of
an error that is not ours, nor what asyncio knows of a task that failed: both may hold a push.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any, Literal

from pushlane.util.log_ids import ids_in
from pushlane.util.texts import traceback_of

_TEXT = "{asctime} {levelname:<7} [{process}] {action}: {message}"
_VALUES = re.compile(r"[\n<(]")  # what asyncio says before them is fixed


def set_up_logs(form: Literal["text", "json"]) -> None:
    """Show what pushlane logs from INFO up, and other libraries' warnings."""
    lines = _JsonLines if form == "json" else _Lines
    formatter = lines(_TEXT, style="{", defaults={"action": "-"})
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pushlane").setLevel(logging.INFO)


def keep_values_out() -> None:
    """Have warnings of a command that sets up no logs keep to the same rule."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Lines("{message}", style="{"))


class _Lines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        message = _message(record)
        ids = [f"{name}={one}" for name, one in ids_in(record).items() if one not in message]
        record.message = f"{message} [{' '.join(ids)}]" if ids else message
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return traceback_of(ei[1]) if ei[1] is not None else ""


class _JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "action": getattr(record, "action", "-"),
            "message": _message(record),
            **ids_in(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    return _VALUES.split(message, maxsplit=1)[0].strip() if record.name == "asyncio" else message
