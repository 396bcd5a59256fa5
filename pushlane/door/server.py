"""The server of the application: it listens, and ends once what is under way is answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette

from pushlane.core.errors import BadInput
from pushlane.door.protocol import BoundedProtocol
from pushlane.operations.problems import VERSION_HEADER
from pushlane.version import VERSION

GRACE_S = 60
"""The longest wait for what is under way at the end."""

_QUEUE = 1_024
_UNREAD_MS = 30_000
"""The system ends a connection whose other end takes nothing of what is sent for longer."""


class Place(NamedTuple):
    """The address that a server listens at, and its certificate.

    `proxies` are the addresses of proxies that end TLS, and whose word on who asks is taken.
    """

    host: str
    port: int
    cert: Path | None = None
    key: Path | None = None
    proxies: tuple[str, ...] = ()


class Listening(NamedTuple):
    """A server that listens, at a URL."""

    server: uvicorn.Server
    at: socket.socket
    url: str

    async def run(self) -> None:
        """Serve until `stop`."""
        await self.server.serve(sockets=[self.at])

    def stop(self) -> None:
        """End once what is under way is answered; take nothing new."""
        self.server.should_exit = True


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command."""
        yield


def listening(app: Starlette, place: Place) -> Listening:
    """Return a server that listens at a place. Raises BadInput when it cannot."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        ssl_certfile=place.cert,
        ssl_keyfile=place.key,
        proxy_headers=bool(place.proxies),
        forwarded_allow_ips=list(place.proxies),
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[(VERSION_HEADER, VERSION)],
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )
    try:
        config.load()
    except OSError as error:  # those of TLS are some, too
        raise BadInput(
            f"--tls-cert {place.cert} and --tls-key {place.key} cannot be used: {error}; give the "
            "certificate with its chain, and its key, as PEM"
        ) from error
    try:
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        at = socket.create_server((place.host, place.port), family=family, backlog=_QUEUE)
        at.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for those it accepts
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            at.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    except OSError as error:
        raise BadInput(
            f"cannot listen at {place.host}:{place.port}: {error.strerror or error}; give "
            "another --bind"
        ) from error
    scheme = "https" if place.cert else "http"
    host = f"[{place.host}]" if ":" in place.host else place.host
    return Listening(_Server(config), at, f"{scheme}://{host}:{at.getsockname()[1]}")
