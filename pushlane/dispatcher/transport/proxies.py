"""Tells whether a proxy of the environment applies to a URL, as the client that uses it reads it.

The rules are those of reqwest (hyper-util's `Matcher::from_env`), which are curl's: of a variable
in capitals and one in small letters the former counts, set to nothing too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from pushlane.dispatcher.transport.request import read_url

_SCHEMES = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


def proxy_applies(url: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether requests to a URL go by a proxy. Raises BadInput as `read_url` does."""
    origin, _ = read_url(url)
    host = origin.host
    if "REQUEST_METHOD" in environment:  # of CGI, where HTTP_PROXY is a header
        return False
    own = _variable(environment, f"{origin.scheme}_proxy")
    if not (_is_proxy(own) or _is_proxy(_variable(environment, "all_proxy"))):
        return False
    excepted = _variable(environment, "no_proxy")
    return not any(_matches(entry.strip(), host) for entry in excepted.split(","))


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper(), environment.get(name, ""))


def _is_proxy(value: str) -> bool:
    scheme, mark, rest = value.rpartition("://")
    if mark and scheme.lower() not in _SCHEMES:
        return False
    authority = rest.partition("/")[0]
    return bool(authority) and not any(char.isspace() for char in value)


def _matches(entry: str, host: str) -> bool:
    """Tell whether an entry of NO_PROXY excepts a host: a network, an address, a domain, or `*`."""
    try:
        address = ip_address(host)
    except ValueError:
        domain = entry.removeprefix(".").lower()
        return entry == "*" or (bool(domain) and (host == domain or host.endswith(f".{domain}")))
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False
