"""Posts JSON to URLs that are the addresses of pushes: guarded, and each host by itself.

No answer of a host is about the sink, as others may be well. One that fails rests alone.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from pushlane.core.errors import RefusedUrl, UnknownHost
from pushlane.core.push import Outcome, Scope
from pushlane.dispatcher.sinks.guarded_clients import GuardedClients, of_host, refusal
from pushlane.dispatcher.sinks.host_rests import HostRests
from pushlane.dispatcher.sinks.http_client import Timeouts, lost
from pushlane.dispatcher.sinks.posting import post_request
from pushlane.dispatcher.sinks.webhook_signature import Signer
from pushlane.util.url_guard import CheckedUrl, UrlGuard

GONE = 410

Read = Callable[[Response], Awaitable[Outcome]]


class AddressPoster:
    """Posts to the URL that it is given with each push.

    `now` is the Unix time in seconds.
    """

    def __init__(
        self,
        guard: UrlGuard,
        clients: GuardedClients,
        timeouts: Timeouts,
        secrets: str | Sequence[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._guard = guard
        self._clients = clients
        self._timeouts = timeouts
        self._signer = Signer(secrets)
        self._now = now
        self._rests = HostRests(time.monotonic)

    async def post(
        self, url: str, key: str, body: bytes, more: Mapping[str, str] | None, read: Read
    ) -> Outcome:
        """Return what became of a push to this URL; `read` says what an answer means."""
        try:
            checked = await self._guard.check(url)
        except (RefusedUrl, UnknownHost) as error:
            return refusal(error)
        host = (checked.host, checked.port)
        if (wait_s := self._rests.wait_s(host)) is not None:
            return Outcome.throttled("its host takes no pushes now", wait_s, Scope.HOST)
        outcome = None
        try:
            outcome = of_host(await self._ask(checked, key, body, more or {}, read))
        finally:
            self._rests.landed(host, outcome)
        return outcome

    async def close(self) -> None:
        await self._clients.close()

    async def _ask(
        self, checked: CheckedUrl, key: str, body: bytes, more: Mapping[str, str], read: Read
    ) -> Outcome:
        headers = {"Idempotency-Key": key, **self._signer.headers(key, body, self._now()), **more}
        try:
            async with (
                self._clients.at(checked) as client,
                post_request(client, checked.url, body, headers) as response,
            ):
                outcome = await read(response)
                if response.status == GONE:
                    return Outcome.gone(f"HTTP {GONE}")
                return outcome
        except PyreqwestError as error:
            return lost(error, self._timeouts, "the host of its URL")
