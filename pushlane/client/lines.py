"""Sends pushes of a task to a server as lines: line n is the push of seq n.

A request whose answer is lost is sent again: lines that are safe are left out there.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence

from pushlane.client.remote import Body, Refused, Remote
from pushlane.operations.problems import error_of, problem
from pushlane.operations.receiving import Received
from pushlane.util.errors import LinesBusy

_WAIT_S = 60.0
_NDJSON = "application/x-ndjson"
_QUICKLY = 1


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


_BUSY = problem(0, LinesBusy.__name__, "").type
