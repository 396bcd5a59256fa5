"""A processor that posts to the receiving end, and blocks its event loop for good when told to.

It is told by a file in the folder in which it runs. The first push that meets it takes it away: so
one worker of several hangs, once.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

from pushlane.core.ports import Delivery
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.webhook import WebhookOptions, WebhookSink

URL = "FAULTS_URL"
"""The variable with the URL of the receiving end."""

_ORDER = "hang"
_SLOTS = 100
_TIMEOUT_S = 30.0
_FOR_GOOD_S = 3_600.0


async def send(push: Push) -> Outcome:
    if _is_told():
        time.sleep(_FOR_GOOD_S)  # noqa: ASYNC251 - that is the fault
    [outcome] = await _webhook().deliver([Delivery(push, Level.HIGH)])
    return outcome


def order(folder: Path) -> Path:
    """Have the next push that a processor in this folder gets block it; gone once one does."""
    path = folder / _ORDER
    path.touch()
    return path


def _is_told() -> bool:
    try:
        os.unlink(_ORDER)
    except FileNotFoundError:
        return False
    return True


@functools.cache
def _webhook() -> WebhookSink:
    return WebhookOptions(url=os.environ[URL]).open(_SLOTS, _TIMEOUT_S, retry_timeouts=False)
