"""Posts a message to an alert's webhook as JSON, with a few attempts.

The Idempotency-Key is the message's id, which is the same for each attempt and after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Self
from urllib.parse import quote

import msgspec
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from pushlane.pipeline.alerts.firing import AlertMessage

_TIMEOUT_S = 10.0
_WAITS_S = (1.0, 4.0)
_PLAIN = '[]",: '
"""Characters of a message's id that a header may hold; others are quoted as in a URL."""
Sleep = Callable[[float], Awaitable[None]]


class Webhook:
    """An HTTP client for alerts, as an async context manager; `sleep` waits between attempts."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._client = (
            ClientBuilder()
            .user_agent("pushlane")
            .default_headers({"Content-Type": "application/json"})
            .timeout(timedelta(seconds=_TIMEOUT_S))
            .follow_redirects(False)
            .referer(False)
            .build()
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def send(self, url: str, message: AlertMessage) -> str:
        """Post the message; return why it was not taken by the last attempt, empty if it was."""
        why = await self._post(url, message)
        for wait_s in _WAITS_S:
            if not why:
                break
            await self._sleep(wait_s)
            why = await self._post(url, message)
        return why

    async def _post(self, url: str, message: AlertMessage) -> str:
        """Try once; the returned reason never holds the URL, nor what the webhook answered."""
        try:
            request = (
                self._client.post(url)
                .header("Idempotency-Key", quote(message.id, _PLAIN))
                .body_bytes(msgspec.json.encode(message))
                .build()
            )
            answer = await request.send()
        except PyreqwestError as error:
            return f"no answer ({type(error).__name__})"
        return "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"
