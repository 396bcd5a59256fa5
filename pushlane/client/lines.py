"""Sends pushes of a task to a server as lines: line n is the push of seq n.

A request whose answer is lost is sent again: lines that are safe are left out there.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pushlane.client.remote import Body, Refused, Remote
from pushlane.core.errors import TaskConflict
from pushlane.core.push import Push
from pushlane.core.task import Task
from pushlane.operations.problems import error_of, problem
from pushlane.operations.receiving import Received
from pushlane.producers.encoder import carried_expiry_ms

_MOST_BYTES = 4 * 1024 * 1024
_WAIT_S = 60.0
_NDJSON = "application/x-ndjson"
_QUICKLY = 1
_LEFT_OUT = (None, "", 0)


class Lines:
    """The lines of a task at a server; `safe` is the last that is known to be on its lane."""

    def __init__(self, remote: Remote, task_id: str) -> None:
        self._remote = remote
        self._task_id = task_id
        self.safe = 0

    async def look(self) -> int:
        """Ask which line is safe, and return it. Raises what `GetSafeLine` does, and LinesBusy."""
        await self._ask("GET", "", Body())
        return self.safe

    async def send(self, lines: Sequence[bytes], first: int) -> None:
        """Send lines, of which the first is line `first`; none to say that more will come.

        Raises what the server refuses, and LinesBusy.
        """
        packed = await asyncio.to_thread(gzip.compress, b"\n".join(lines), _QUICKLY)
        await self._ask("POST", f"?from={first}", Body(packed, _NDJSON, "gzip"))

    async def _ask(self, method: str, query: str, body: Body) -> None:
        path = f"/tasks/{self._task_id}/pushes{query}"
        try:
            answer = await self._remote.request(method, path, body, _WAIT_S)
        except Refused as refused:
            if refused.problem.safe_line is not None:
                self.safe = refused.problem.safe_line
            if refused.problem.type == _BUSY:
                raise LinesBusy(refused.problem.detail) from None
            raise error_of(refused.problem) from None
        received: Received = self._remote.read(answer, Received)
        self.safe = received.safe_line


class LinesBusy(TaskConflict):
    """The server receives lines of the task elsewhere, or has not seen yet that these ended."""


_BUSY = problem(0, LinesBusy.__name__, "").type


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
    }
    return msgspec.json.encode({name: one for name, one in line.items() if one not in _LEFT_OUT})


def _by_sink(found: dict[str, Any] | None, task: Task) -> dict[str, Any] | None:
    """Return what a push has by sink, with what it has for all others at each of the task's."""
    if found is None:
        return None
    others = {} if "" not in found else dict.fromkeys(task.chain, found[""])
    return others | {sink: one for sink, one in found.items() if sink}
