"""The line that an emulator's log gets for a push: no address and no content."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any


def arrival_line(data: Mapping[str, Any]) -> bytes:
    """Return the line on a push that arrived now, of what its data says of it."""
    line = {
        "task": data.get("task", ""),
        "seq": int(data.get("seq") or 0),
        "level": data.get("level", ""),
        "at_ms": time.time_ns() / 1e6,
    }
    return json.dumps(line).encode() + b"\n"
