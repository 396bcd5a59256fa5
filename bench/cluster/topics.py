"""Asks a cluster's admin REST which broker owns which topic, and has topics move."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_S = 30.0


def lanes_of(admin: str, namespace: str) -> list[str]:
    topics = _get(f"{admin}/admin/v2/persistent/{namespace}")
    return [topic.rpartition("/")[2] for topic in topics]


def owner(admin: str, namespace: str, lane: str) -> int:
    """The port of the broker that owns the lane's topic; 0 if nobody can tell just now."""
    try:
        found = _get(f"{admin}/lookup/v2/topic/persistent/{namespace}/{lane}")
    except OSError:
        return 0
    return urlsplit(found["brokerUrl"]).port or 0


def unload(admin: str, namespace: str) -> None:
    """Return once all topics of the namespace are closed; who asks for one next makes it move."""
    _ask(f"{admin}/admin/v2/namespaces/{namespace}/unload", "PUT")


def _get(url: str) -> Any:
    return json.loads(_ask(url, "GET"))


def _ask(url: str, method: str) -> bytes:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, method=method), timeout=_TIMEOUT_S) as reply:
        return bytes(reply.read())
