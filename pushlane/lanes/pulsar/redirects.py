"""The hosts that a token may be sent to when the admin REST leads to another broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

import msgspec

from pushlane.core.errors import Unreachable
from pushlane.lanes.pulsar.credentials import Credentials
from pushlane.util.tls import TlsFiles, is_of_our_authority

_HTTPS_PORT = 443


class BrokerHosts:
    """Our own host, and the brokers that it names.

    Only superusers may ask for these names; so a host with a certificate of an authority that was
    set for this cluster is a broker too. It never goes from https to http.
    """

    def __init__(self, shown_url: str, credentials: Credentials, files: TlsFiles) -> None:
        self._shown_url = shown_url
        self._credentials = credentials
        self._files = files
        self._named: frozenset[str] = frozenset()
        self._signed: set[tuple[str, int]] = set()

    async def check(
        self, own: str, target: SplitResult, list_brokers: Callable[[], Awaitable[bytes]]
    ) -> None:
        """Raise Unreachable for a target that no token may be sent to."""
        asked = urlsplit(own)
        if target.scheme != asked.scheme or target.hostname is None:
            raise self._misled(target)
        if not self._credentials.has_token or target.hostname == asked.hostname:
            return
        if await self._is_signed(target.hostname, target):
            return
        if target.hostname not in self._named:
            self._named = _hosts(await list_brokers())
        if target.hostname not in self._named:
            raise self._misled(target)

    async def _is_signed(self, host: str, target: SplitResult) -> bool:
        """Look for ourselves: the client trusts the authorities of this system besides."""
        if target.scheme != "https" or self._files.ca_file is None:
            return False
        place = host, target.port or _HTTPS_PORT
        if place not in self._signed and await is_of_our_authority(*place, self._files):
            self._signed.add(place)
        return place in self._signed

    def _misled(self, target: SplitResult) -> Unreachable:
        return Unreachable(
            f"Pulsar's admin REST at {self._shown_url} leads to {target.scheme}://"
            f"{target.hostname}, which is not one of its active brokers over the same scheme: no "
            "token is sent there; check --admin-url / PUSHLANE_ADMIN_URL and what brokers "
            "advertise, or use https:// with pulsar_ca_file"
        )


def _hosts(content: bytes) -> frozenset[str]:
    """Return the hosts of a list of brokers, each host:port; none when it is no such list."""
    try:
        names = msgspec.json.decode(content, type=list[str])
    except msgspec.DecodeError:
        return frozenset()
    return frozenset(host for name in names if (host := urlsplit(f"//{name}").hostname))
