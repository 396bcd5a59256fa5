"""Asks Pulsar and Redis whether they answer, and waits until they do."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from pushlane.lanes.errors import Unreachable

ASK_TIMEOUT_S = 5.0
POLL_S = 0.2


def pulsar_answers(admin_url: str) -> bool:
    """Whether the broker's own check passes: it publishes to itself and reads that back."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{admin_url}/admin/v2/brokers/health", timeout=ASK_TIMEOUT_S) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def redis_answers(url: str) -> bool:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 6379)
    try:
        with socket.create_connection(address, timeout=ASK_TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def wait_until(
    answers: Callable[[], bool],
    *,
    what: str,
    deadline_s: float,
    is_running: Callable[[], bool],
    log_tail: Callable[[], str],
) -> None:
    """Return when it answers.

    Raises:
        Unreachable: it ended, or `deadline_s` passed; shows the end of its log.
    """
    until = time.monotonic() + deadline_s
    while not answers():
        if not is_running():
            raise Unreachable(f"{what} ended while starting; the end of its log:\n{log_tail()}")
        if time.monotonic() > until:
            raise Unreachable(
                f"{what} is silent after {deadline_s:.0f} s; the end of its log:\n{log_tail()}"
            )
        time.sleep(POLL_S)
