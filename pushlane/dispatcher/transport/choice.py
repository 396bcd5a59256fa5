"""Chooses the client that posts to a URL: ours in the loop, or pyreqwest's where that is needed.

Where a row names the URL no proxy is asked, as it would resolve the name again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.transport.answer import MOST_BODY, Addresses, OpenGuarded, Transport
from pushlane.dispatcher.transport.dial import tls_context
from pushlane.dispatcher.transport.http2_pool import guarded_pools, http2_pool
from pushlane.dispatcher.transport.loop_client import LoopClient, Seconds
from pushlane.dispatcher.transport.proxies import proxy_applies
from pushlane.dispatcher.transport.pyreqwest_client import PyreqwestTransport
from pushlane.dispatcher.transport.request import read_url
from pushlane.util.extras import needs_extra
from pushlane.util.texts import shown_url
from pushlane.util.url_guard import split_url

log = logging.getLogger("pushlane.transport")

OURS = "our own client, in the loop"

Client = Literal["loop", "pyreqwest"]
Tls = Literal["", "aiofastnet"]
Http2 = Literal["", "ngh2"]
_STREAMS = 100


def open_transport(
    url: str,
    slots: int,
    timeouts: Timeouts,
    headers: Mapping[str, str],
    *,
    client: Client = "loop",
    tls: Tls = "",
    only_http2: bool = False,
    most_body: int = MOST_BODY,
) -> tuple[Transport, str]:
    """Return a transport to the origin of a URL, for `slots` requests at once, and the path.

    Raises BadInput for a URL that cannot be read, and a header that cannot be sent.
    """
    if not _told(shown_url(url), why_not_loop(url, client, only_http2=only_http2)):
        to, path = read_url(url)
        seconds = _seconds(timeouts)
        return LoopClient(to, seconds, slots, headers, tls=tls, most_body=most_body), path
    origin, path = split_url(url)
    transport = PyreqwestTransport(
        origin, slots, timeouts, headers, only_http2=only_http2, most_body=most_body
    )
    return transport, path


def guarded_opener(
    slots: int,
    timeouts: Timeouts,
    headers: Mapping[str, str],
    *,
    client: Client = "loop",
    tls: Tls = "",
    only_http2: bool = False,
) -> OpenGuarded:
    """Return what opens transports to hosts that rows name, for `slots` requests at once to each.

    Raises BadInput, here and not for a host, when a header cannot be sent, or what TLS needs is
    not there.
    """
    if _told("URLs that rows name", why_not_loop("", client, only_http2=only_http2)):
        return guarded_pools(
            _STREAMS, slots, timeouts, headers, only_http2=only_http2, reads_ahead=False
        )
    context = tls_context()  # one for all hosts

    def connect(origin: str, *, addresses: Addresses) -> LoopClient:
        to, _ = read_url(origin)
        seconds = _seconds(timeouts)
        return LoopClient(
            to, seconds, slots, headers, addresses=addresses, context=context, tls=tls
        )

    connect("https://localhost", addresses=tuple)
    return connect


def http2_transport(
    url: str,
    streams: int,
    slots: int,
    timeouts: Timeouts,
    headers: Mapping[str, str],
    http2: Http2,
) -> tuple[Transport, str]:
    """Return a transport of HTTP/2 to the origin of a URL, for `slots` requests, and the path.

    Raises BadInput for a URL or a header that cannot be, and where an extra is not installed.
    """
    if http2:
        with needs_extra("h2", f'http2 = "{http2}"'):
            from pushlane.dispatcher.transport.http2 import Http2Client

        if not _told(shown_url(url), why_not_http2(url, http2)):
            to, path = read_url(url)
            return Http2Client(to, _seconds(timeouts), slots, headers, streams=streams), path
    origin, path = split_url(url)
    return http2_pool(origin, streams, slots, timeouts, headers), path


def why_not_http2(url: str, http2: Http2) -> str:
    """Return what posts over HTTP/2 to a URL instead of our own client, and why."""
    if not http2:
        return "pyreqwest, as http2 is not set"
    return "pyreqwest, as a proxy variable applies" if proxy_applies(url) else ""


def _told(whom: str, why_not: str) -> str:
    log.info("requests to %s are posted by %s", whom, why_not or OURS, extra={"action": "client"})
    return why_not


def _seconds(timeouts: Timeouts) -> Seconds:
    return Seconds(timeouts.total_s, timeouts.connect_s, timeouts.first_byte_s)


def why_not_loop(url: str, client: Client, *, only_http2: bool) -> str:
    """Return what posts to a URL instead of our own client, and why; empty where that does.

    The URL is empty where rows name it.
    """
    if client == "pyreqwest":
        return 'pyreqwest, as client = "pyreqwest"'
    if only_http2:
        return "pyreqwest, as only_http2 is set"
    return "pyreqwest, as a proxy variable applies" if url and proxy_applies(url) else ""
