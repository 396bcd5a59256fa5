"""Opens connections: looks names up, tries addresses side by side, checks certificates.

Names are looked up by the threads of the guard, for each connection anew. What is wrong is known
from the class and the code of an error, not from its text.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeVar

import certifi

from pushlane.core.errors import BadInput
from pushlane.dispatcher.transport.answer import Addresses, Answered
from pushlane.dispatcher.transport.request import Origin
from pushlane.util.extras import needs_extra
from pushlane.util.tls import EXPIRED, NOT_TLS, OTHER_HOST
from pushlane.util.url_guard import resolve_host

_NEXT_ADDRESS_S = 0.25  # RFC 8305, 5

_Reached = tuple[str, socket.socket]


class Dialed(asyncio.Protocol, ABC):
    """A connection to `ip`. Over TLS it first hears of the transport below, then of TLS's own."""

    __slots__ = ()

    ip: str

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def start(self, request: Any, answered: Answered, token: Any, began_s: float) -> None:
        """Write a request; `answered` hears of it once, and never before this has returned."""

    @abstractmethod
    def end(self) -> None:
        """End it; what is under way is BROKEN."""

    @abstractmethod
    def is_over(self, below: asyncio.WriteTransport) -> None:
        """Hear of the transport that carries the one of TLS."""


M = TypeVar("M", bound=Dialed)


def tls_context(alpn: Sequence[str] = ("http/1.1",)) -> ssl.SSLContext:
    """Return a context that trusts whom this system trusts; certifi's where that is nobody.

    It costs some 20 ms. Raises BadInput when SSL_CERT_FILE cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(alpn))
    places = ssl.get_default_verify_paths()
    if given := os.environ.get(places.openssl_cafile_env):
        try:
            context.load_verify_locations(given)
        except OSError as error:  # ssl's own are of these
            raise BadInput(
                f"{places.openssl_cafile_env} {given} cannot be used ({type(error).__name__}): "
                "give certificates in PEM form, in a file that this user may read"
            ) from error
    has_folder = places.capath is not None and any(os.scandir(places.capath))
    if not has_folder and not context.cert_store_stats()["x509_ca"]:
        context.load_verify_locations(certifi.where())
    return context


class Dialer:
    """Opens connections to one origin.

    `addresses` are those that may be connected to, asked each time; by default they are what the
    name of the origin has. One with which TLS failed is tried after the others. With `fast` TLS
    is aiofastnet's, of the extra of that name. Raises BadInput when it is not installed.
    """

    def __init__(
        self,
        origin: Origin,
        context: ssl.SSLContext | None,
        addresses: Addresses | None = None,
        *,
        fast: bool = False,
    ) -> None:
        self._origin = origin
        self._context = context if origin.scheme == "https" else None
        self._addresses = addresses
        self._failed_ip = ""
        self._asking: asyncio.Task[list[str]] | None = None
        self._connect = _fast_connect if fast and self._context is not None else _connect
        if fast:
            with needs_extra("aiofastnet", 'tls = "aiofastnet"'):
                import aiofastnet  # noqa: F401

    async def open(self, make: Callable[[str], M]) -> M:
        """Return a new connection; `make` makes it for an address.

        Raises OSError when none comes to stand; UnicodeError when the name can be none.
        """
        ips = _interleaved(await self._find())
        after = ips.index(self._failed_ip) + 1 if self._failed_ip in ips else 0
        ip, sock = await _race(ips[after:] + ips[:after], self._origin.port)
        host = self._origin.host.rstrip(".")
        try:
            return await self._connect(lambda: make(ip), sock, self._context, host)
        except BaseException:
            self._failed_ip = ip
            raise

    async def _find(self) -> Sequence[str]:
        if self._addresses is not None:
            return self._addresses()
        if not self._origin.is_name:
            return [self._origin.host]
        if self._asking is None:
            self._asking = asyncio.create_task(resolve_host(self._origin.host))
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)  # who waits may be cancelled, others wait as well

    def _asked(self, asking: asyncio.Task[list[str]]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # nobody may be waiting for it any more


def why_unconnected(error: Exception) -> str:
    """Say why no connection came to stand, for people; empty where it is nothing of these."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its host name is not known"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in OTHER_HOST:
            return "its certificate is for another host"
        if error.verify_code == EXPIRED:
            return "its certificate has expired"
        return "its certificate is not trusted"
    if isinstance(error, ssl.SSLError) and error.reason in NOT_TLS:
        return "it speaks no TLS at that port"
    return ""


async def _connect(
    protocol: Callable[[], M], sock: socket.socket, context: ssl.SSLContext | None, host: str
) -> M:
    """Connect on the loop's own transports.

    TLS is begun on one that stands, as the transport of TLS does not tell what the one below it
    has not written yet.
    """
    loop = asyncio.get_running_loop()
    if context is None:
        _, made = await loop.create_connection(protocol, sock=sock)
        return made
    made = protocol()
    below, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
    if below.is_closing():
        raise ConnectionResetError
    made.connection_made(below)  # what comes in the last packet of the handshake is read in it
    secured = await loop.start_tls(below, made, context, server_hostname=host)
    if secured is None:
        raise ConnectionResetError
    made.connection_made(secured)
    made.is_over(below)
    return made


async def _fast_connect(
    protocol: Callable[[], M], sock: socket.socket, context: ssl.SSLContext | None, host: str
) -> M:
    import aiofastnet

    loop = asyncio.get_running_loop()
    made: M
    _, made = await aiofastnet.create_connection(
        loop, protocol, sock=sock, ssl=context, server_hostname=host
    )
    return made


def _interleaved(ips: Iterable[str]) -> list[str]:
    """Return addresses with both families by turns, the family of the first one first."""
    found = list(ips)
    of_first = [ip for ip in found if (":" in ip) == (":" in found[0])]
    others = [ip for ip in found if ip not in of_first]
    return [ip for pair in zip_longest(of_first, others) for ip in pair if ip is not None]


async def _race(ips: Sequence[str], port: int) -> _Reached:
    """Return the first address that answers; the next one is tried when one is late."""
    left = list(reversed(ips))
    trying: set[asyncio.Task[_Reached]] = set()
    failure: BaseException = socket.gaierror(socket.EAI_NONAME, "the name has no address")
    try:
        while left or trying:
            if left:
                trying.add(asyncio.create_task(_reach(left.pop(), port)))
            done, _ = await asyncio.wait(
                trying,
                timeout=_NEXT_ADDRESS_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                trying.discard(attempt)
                if (failed := attempt.exception()) is None:
                    return attempt.result()
                failure = failed
        raise failure
    finally:
        for attempt in trying:
            attempt.add_done_callback(_close_unused)
            attempt.cancel()


async def _reach(ip: str, port: int) -> _Reached:
    sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (ip, port))
    except BaseException:
        sock.close()
        raise
    return ip, sock


def _close_unused(attempt: asyncio.Task[_Reached]) -> None:
    with suppress(asyncio.CancelledError, OSError):
        _, sock = attempt.result()
        sock.close()
