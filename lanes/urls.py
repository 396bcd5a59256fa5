"""Checks URLs that people give, and takes secrets out of those that people will read."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pushlane.lanes.errors import BadInput

MASK = "***"


def masked(text: str) -> str:
    """Return the text without the passwords and query values of URLs in it."""
    text = re.sub(r"://([^/@:]*):[^/]*@", rf"://\1:{MASK}@", text)
    text = re.sub(r"://[^/@:]+@", f"://{MASK}@", text)
    return re.sub(r"([?&][^=&\s]+=)[^&\s]+", rf"\1{MASK}", text)


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
