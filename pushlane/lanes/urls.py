"""Checks URLs that people give, and takes secrets out of those that people will read."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pushlane.core.errors import BadInput

MASK = "***"
_TOKEN = re.compile(r"^(?=.*[0-9A-Z]).{16,}$")


def masked(text: str) -> str:
    """Return the text without the passwords and query values of URLs in it."""
    text = re.sub(r"://([^/@:\s]*):(?!\d+/)[^\s]*@", rf"://\1:{MASK}@", text)
    text = re.sub(r"://([^/@:]*):[^/]*@", rf"://\1:{MASK}@", text)
    text = re.sub(r"://[^/@:]+@", f"://{MASK}@", text)
    return re.sub(r"([?&][^=&\s]+=)[^&\s]+", rf"\1{MASK}", text)


def shown_url(url: str) -> str:
    """Return a URL without its user and password, its query, and the parts of its path that may be
    tokens: of 16 characters or more, with a digit or a capital letter.
    """
    scheme, separator, rest = masked(re.split(r"[?#]", url)[0]).partition("://")
    host, *path = rest.split("/")
    host = f"{MASK}@{host.rpartition('@')[2]}" if "@" in host else host
    return scheme + separator + "/".join([host, *(re.sub(_TOKEN, MASK, part) for part in path)])


def each_host(url: str) -> list[str]:
    """Return a URL for each host of one that names several with commas, with or without schemes."""
    scheme, separator, hosts = url.partition("://")
    return [
        (host if "://" in host else scheme + separator + host).strip().rstrip("/")
        for host in hosts.split(",")
    ]


def require_http_url(url: str, refusal: str) -> None:
    """Raise BadInput with this text unless it is an HTTP URL. The text must not show the URL, which
    may hold a token.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(refusal)
