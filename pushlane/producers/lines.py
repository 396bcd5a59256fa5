"""Writes pushes as lines: line n is the push of seq n, as `received` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pushlane.core.push import Push
from pushlane.core.task import Task
from pushlane.producers.encoder import carried_expiry_ms

_MOST_BYTES = 4 * 1024 * 1024
_LEFT_OUT = (None, "", 0)


def in_requests(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines for one request each."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size >= _MOST_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def line_of(push: Push, task: Task) -> bytes:
    """Return a push as a line, without what it does not have."""
    line: dict[str, Any] = {
        "recipient": push.recipient,
        "title": push.title,
        "body": push.body,
        "data": push.data,
        "not_before_ms": push.not_before_ms,
        "expires_at_ms": 0 if push.expires_at_ms == carried_expiry_ms(task) else push.expires_at_ms,
        "zone": push.zone,
        "collapse": push.collapse,
        "attributes": push.attributes,
        "trace_id": push.trace_id,
        "address": _by_sink(push.addresses, task),
        "payload": _by_sink(push.payloads, task),
        "after_line": push.after_seq,
        "key": push.key,
        "tracestate": push.tracestate,
    }
    return msgspec.json.encode({name: one for name, one in line.items() if one not in _LEFT_OUT})


def _by_sink(found: dict[str, Any] | None, task: Task) -> dict[str, Any] | None:
    """Return what a push has by sink, with what it has for all others at each of the task's."""
    if found is None:
        return None
    others = {} if "" not in found else dict.fromkeys(task.chain, found[""])
    return others | {sink: one for sink, one in found.items() if sink}
