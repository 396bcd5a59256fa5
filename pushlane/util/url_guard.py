"""Checks URLs that come from outside (rows, subscriptions, rules) before anything connects to them.

Whoever may name a URL could make this process ask for what only it can reach: a database inside the
network, the metadata of a cloud. So a URL has to lead to public addresses alone, but for what the
operator opens. A URL is read by the parser of the client that will use it, and the addresses that
were checked are handed out to be connected to: names are not resolved a second time.

The tables are IANA's registries of special-purpose addresses (RFC 6890), and what clouds add. Of
IPv6 only global unicast (2000::/3) counts as public, so that whatever is assigned later does not.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec
from pyreqwest.http import Url

from pushlane.core.errors import BadInput
from pushlane.util.errors import RefusedUrl, UnknownHost

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; the metadata of Alibaba Cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the platform of Azure, from each of its machines
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols of the IETF; the metadata of Oracle's cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocols of the IETF, among them Teredo, benchmarks and ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which holds an IPv4 address
        "3fff::/20",  # documentation
    )
]
_HOLDS_IPV4 = [
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
]


def read_address(text: str) -> Address:
    """Return where a packet to this address ends: of an IPv4 one in an IPv6 one, the former.

    A zone (`%eth0`) is left out. Raises ValueError when the text is no address.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and any(address in network for network in _HOLDS_IPV4):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Tell whether anybody on the internet reaches this address too."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _GLOBAL_UNICAST and not any(address in network for network in _NOT_PUBLIC_6)


MAX_URL = 2_048

NOT_A_URL = "its URL cannot be read"
HAS_USER = "its URL has a user or a password"
NOT_HTTPS = "its URL is not https"
OTHER_PORT = "its URL has a port that is not open"
OTHER_HOST = "its URL has a host that is not on the list"
NOT_PUBLIC = "its URL leads to an address that is not public"
NO_ADDRESS = "the host of its URL is not found"
NO_ANSWER = "the host of its URL cannot be resolved now"

_HTTPS_PORT = 443
_FORM = re.compile(r"https?://([^\s\\/?#]+)([/?#][^\s\\]*)?", re.IGNORECASE)
_NAME = re.compile(r"(?!.{254})[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_MOST_HOSTS = 1_000
_RESOLVE_S = 5.0
_FAILED_S = 5.0  # how long a failed look-up is known
# Threads of their own: names that never answer keep some for long, and libuv has two for names.
_LOOKUPS = ThreadPoolExecutor(64, "look-up")
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

Resolve = Callable[[str], Awaitable[Collection[str]]]


class CheckedUrl(msgspec.Struct, frozen=True):
    """A URL that may be asked, as the client writes it, and the addresses to connect to.

    `ip` is the first of `ips`; `host` has no brackets.
    """

    url: str
    scheme: str
    host: str
    port: int
    ips: tuple[str, ...]

    @property
    def ip(self) -> str:
        return self.ips[0]

    @property
    def origin(self) -> str:
        return _split(self.url)[0]

    @property
    def path(self) -> str:
        return _split(self.url)[1]

    def __repr__(self) -> str:
        return f"CheckedUrl({self.scheme}, port {self.port})"


class _Answer(msgspec.Struct, frozen=True):
    """The addresses of a host, none if `failure` says why, and whether they were all opened."""

    at_s: float
    ips: tuple[str, ...] = ()
    failure: str = NO_ADDRESS
    is_open: bool = False
    is_public: bool = False


class UrlGuard:
    """Lets URLs through that lead to public addresses over https.

    `allow` opens hosts (`hooks.example.com`, `*.example.com` for all under it), addresses and
    networks (`10.1.0.0/16`), wherever they are, also over http. `only_hosts` lets nothing but these
    hosts through, and those that `allow` names. `ports` are those that may be asked; by default
    443, and any where `allow` opens. A host's addresses are known for `max_age_s`. Raises BadInput
    for an entry of `allow` or `only_hosts` that is neither; names it.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        only_hosts: Iterable[str] | None = None,
        *,
        ports: Collection[int] = (),
        resolve: Resolve | None = None,
        now: Callable[[], float] = time.monotonic,
        max_age_s: float = 60.0,
    ) -> None:
        self._allow = HostList(allow)
        self._only = None if only_hosts is None else HostList(only_hosts)
        self._ports = frozenset(ports or (_HTTPS_PORT,))
        self._opens_ports = not ports
        self._resolve = resolve_host if resolve is None else resolve
        self._now = now
        self._max_age_s = max_age_s
        self._answers: dict[str, _Answer] = {}
        self._asking: dict[str, asyncio.Task[_Answer]] = {}

    async def check(self, url: str) -> CheckedUrl:
        """Return what may be connected to for this URL.

        Raises:
            RefusedUrl: it must not be asked.
            UnknownHost: its host has no address now.
        """
        parsed, host = _parse(url)
        scheme, port = parsed.scheme, parsed.port_or_known_default or 0
        if self._only and not (self._only.has_host(host) or self._allow.has_host(host)):
            raise _refused(OTHER_HOST, host, "only_hosts")
        may_open = self._allow.has_host(host) or bool(self._allow.networks)
        self._require_way_in(scheme, host, port, may_open)
        is_name = parsed.domain is not None  # an address is asked as it stands, whoever resolves it
        answer = await self._answer(host) if is_name else self._judged(host, 0.0, [host])
        if not answer.ips:
            raise _unknown(answer.failure, host)
        if not answer.is_public:
            raise _refused(NOT_PUBLIC, host, "allow")
        self._require_way_in(scheme, host, port, answer.is_open)
        return CheckedUrl(str(parsed), scheme, host, port, answer.ips)

    def _require_way_in(self, scheme: str, host: str, port: int, is_open: bool) -> None:
        if scheme != "https" and not is_open:
            raise _refused(NOT_HTTPS, host, "allow")
        if port not in self._ports and not (self._opens_ports and is_open):
            raise _refused(OTHER_PORT, host, "allow" if self._opens_ports else "ports")

    async def _answer(self, host: str) -> _Answer:
        known = self._answers.get(host)
        if known is not None:
            age_s = self._now() - known.at_s
            if age_s < (self._max_age_s if known.ips else min(_FAILED_S, self._max_age_s)):
                return known
        asking = self._asking.get(host)
        if asking is None:
            asking = asyncio.create_task(self._ask(host))
            self._asking[host] = asking
            asking.add_done_callback(lambda _: self._asking.pop(host))
        return await asyncio.shield(asking)  # who waits may be cancelled, and others wait as well

    async def _ask(self, host: str) -> _Answer:
        asked_at_s = self._now()
        try:
            async with asyncio.timeout(_RESOLVE_S):
                found = await self._resolve(host)
            answer = self._judged(host, asked_at_s, found)
        except (OSError, TimeoutError, ValueError) as error:
            is_none = (
                isinstance(error, ValueError) or getattr(error, "errno", None) in _NO_SUCH_NAME
            )
            answer = _Answer(asked_at_s, failure=NO_ADDRESS if is_none else NO_ANSWER)
        self._answers.pop(host, None)
        self._answers[host] = answer
        if len(self._answers) > _MOST_HOSTS:
            del self._answers[next(iter(self._answers))]
        return answer

    def _judged(self, host: str, at_s: float, found: Collection[str]) -> _Answer:
        addresses = [read_address(text) for text in found]
        ips = tuple(dict.fromkeys(text.partition("%")[0] for text in found))
        is_open = self._allow.has_host(host) or all(map(self._allow.has_address, addresses))
        all_public = all(self._allow.has_address(one) or is_public(one) for one in addresses)
        return _Answer(at_s, ips, NO_ADDRESS, is_open, is_open or all_public)


class HostList:
    """Hosts, `*.` and what they end in, addresses and networks, as an operator lists them.

    Raises BadInput when an entry is none of these; names it.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self.networks: list[Network] = []
        self._hosts: set[str] = set()
        self._endings: set[str] = set()
        for entry in entries:
            self._add(entry.strip())

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)

    def has_host(self, host: str) -> bool:
        """Tell whether the host is listed: a name, or an address as a URL has it."""
        if host in self._hosts:
            return True
        labels = host.split(".")
        if any(".".join(labels[at:]) in self._endings for at in range(1, len(labels))):
            return True
        try:
            return self.has_address(read_address(host))
        except ValueError:
            return False

    def _add(self, entry: str) -> None:
        try:
            self.networks.append(ip_network(entry.strip("[]")))
            return
        except ValueError:
            name = entry.removeprefix("*.")
        try:
            host = Url(f"https://{name}").host_str
        except ValueError:
            host = None
        if host is None or not _NAME.fullmatch(host) or re.search(r"[/:@?#%\\\s]", name):
            raise BadInput(
                f"{entry!r} is not a host: give names (hooks.example.com, *.example.com), "
                "addresses or networks (10.1.0.0/16), without scheme, port and path"
            )
        (self._hosts if name == entry else self._endings).add(host)


async def resolve_host(host: str) -> list[str]:
    """Return all addresses of a host, the one to try first first."""
    look_up = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return [str(place[0]) for *_, place in found]


def split_url(url: str) -> tuple[str, str]:
    """Return the origin of an HTTP URL, with its user if it has one, and the rest as it is asked.

    Raises BadInput when the URL cannot be read; does not show it.
    """
    try:
        return _split(str(Url(url)))
    except ValueError:
        raise BadInput("the URL of a sink cannot be read; check its host and port") from None


def _split(url: str) -> tuple[str, str]:
    """Cut a URL that was read where its path begins; its fragment is not sent."""
    at = url.index("/", len("https://"))
    return url[:at], url[at:].partition("#")[0]


def _parse(url: str) -> tuple[Url, str]:
    """Return the URL, and its host without brackets."""
    form = _FORM.fullmatch(url) if len(url) <= MAX_URL and url.isprintable() else None
    if form is None:
        raise RefusedUrl(NOT_A_URL)
    if "@" in form[1]:
        raise RefusedUrl(HAS_USER)
    try:
        parsed = Url(url)
    except ValueError:
        raise RefusedUrl(NOT_A_URL) from None  # the error may hold the URL
    host = (parsed.host_str or "").strip("[]")
    if parsed.domain is not None and not _NAME.fullmatch(host):
        raise RefusedUrl(NOT_A_URL)
    if not host or not parsed.port_or_known_default or "@" in parsed.authority:
        raise RefusedUrl(NOT_A_URL)
    return parsed, host


def _unknown(reason: str, host: str) -> UnknownHost:
    told = reason.replace("the host of its URL", f"the host {host}")
    return UnknownHost(reason, f"{told}: check its name", may_pass=reason == NO_ANSWER)


def _refused(reason: str, host: str, option: str) -> RefusedUrl:
    told = reason.replace("its URL", f"the URL of host {host}", 1)
    return RefusedUrl(reason, f"{told}; if that is intended, allow it with `{option}`")
