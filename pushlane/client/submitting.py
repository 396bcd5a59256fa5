"""Submits rows for a client: on its backend, or through its server."""

from __future__ import annotations

from dataclasses import dataclass

from pushlane.client.connection import Connection
from pushlane.client.lines import Lines
from pushlane.client.remote import Remote
from pushlane.operations.operation import Operation, Result
from pushlane.operations.sending import submitted_by
from pushlane.operations.submitting import SubmitResult, result_view
from pushlane.producers.request import OnProgress, SubmitRequest
from pushlane.producers.submit import submit


async def submitted(
    client: Connection, request: SubmitRequest, tell: OnProgress | None = None
) -> SubmitResult:
    """Submit a request. Raises as `producers.submit.submit` does."""
    if client.remote is None:
        return result_view(await submit(client.backend, client.settings, request, tell))
    way = _AtServer(client.remote)
    return await submitted_by(way, client.settings, request, tell or (lambda progress: None))


@dataclass(frozen=True)
class _AtServer:
    """Does it at a server."""

    remote: Remote

    async def do(self, operation: Operation[Result], traceparent: str = "") -> Result:
        return await self.remote.do(operation, traceparent)

    def lines(self, task_id: str) -> Lines:
        return Lines(self.remote, task_id)
