"""Takes the pushes of a task as lines of JSON, gzip too, at the speed at which they become safe."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from starlette.requests import ClientDisconnect, Request

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.model.access import Role
from pushlane.model.mode import refuse_read_only
from pushlane.operations.doing import refuse_role
from pushlane.operations.receiving import Received
from pushlane.operations.session import Session
from pushlane.producers.received import BadLine, LineGap, LineSplitter, Receiving
from pushlane.util.conversion import whole

SILENT_S = 30.0
"""A body of which nothing comes for longer ends, and with it its hold on the task."""

_FIRST = asyncio.FIRST_COMPLETED
_AT_ONCE = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class StreamEnded(PushlaneError):
    """A body was not received to its end. Lines up to `safe` are on the lane."""

    def __init__(self, why: str, safe: int) -> None:
        self.safe = safe
        super().__init__(f"{why}: lines up to {safe} are safe; go on from {safe + 1}")


class Cut(Exception):
    """Why no more of a body is read."""


async def receiving(at: Session, word: str) -> Receiving:
    """Return a task whose lines a caller may send. Raises NotAllowed, NotNow and UnknownTask."""
    refuse_role(at.caller, Role.SUBMITTER, "sending lines")
    await refuse_read_only(at.backend.documents)
    return Receiving(at.backend, at.settings, await at.task(word))


async def receive(request: Request, at: Session, word: str, stopping: asyncio.Event) -> Received:
    """Put the lines of a request on the lane of a task.

    Raises as `receiving` does, and:
        BadInput: the query or the encoding cannot be, or a line is no push (`BadLine`).
        TaskConflict: lines are missing before these (`LineGap`), or somebody else sends some.
        StreamEnded: the body stopped, or this process does.
    """
    first = _first(request)
    inflate = _inflater(request.headers.get("content-encoding", ""))
    taking = await receiving(at, word)
    cut: list[str] = []

    async def lines() -> AsyncIterator[Sequence[bytes]]:
        splitter = LineSplitter()
        try:
            async for part in _parts(request, stopping):
                for some in inflate(part):
                    yield splitter.feed(some)
            yield splitter.end()
        except Cut as error:
            cut.append(str(error))

    safe = await taking.take(lines(), first)
    if cut:
        raise StreamEnded(cut[0], safe)
    return Received(taking.task.id, safe)


async def _parts(request: Request, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises Cut where it goes no further."""
    body = request.stream()
    stopped = asyncio.ensure_future(stopping.wait())
    coming: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(_next(body))
            await asyncio.wait({coming, stopped}, timeout=SILENT_S, return_when=_FIRST)
            if stopped.done():
                raise Cut("this process stops")
            if not coming.done():
                raise Cut(f"no more of the body came for {SILENT_S:g} s")
            part = coming.result()
            if part is None:
                return
            yield part
    except ClientDisconnect:
        raise Cut("the body was cut off") from None
    finally:
        stopped.cancel()
        if coming is not None:
            coming.cancel()


async def _next(body: AsyncIterator[bytes]) -> bytes | None:
    return await anext(body, None)


def _first(request: Request) -> int:
    """Return which line the body begins with."""
    query = request.query_params
    if other := [name for name in query if name != "from"]:
        raise BadInput(
            f"{other[0][:40]!r} is not a parameter here; `from` is: the number of the first line"
        )
    return whole("from", query.get("from", "1"), 1)


def _inflater(encoding: str) -> Callable[[bytes], Iterable[bytes]]:
    """Return what makes the body of what comes, some at a time: a little may be very much."""
    if encoding in ("", "identity"):
        return lambda part: (part,)
    if encoding != "gzip":
        raise BadInput(f"content-encoding {encoding[:40]!r} is not known; use gzip, or none")
    inflating = zlib.decompressobj(_GZIP)

    def inflate(part: bytes) -> Iterator[bytes]:
        try:
            while part:
                yield inflating.decompress(part, _AT_ONCE)
                part = inflating.unconsumed_tail
        except zlib.error as error:
            raise BadInput("the body is not gzip") from error

    return inflate


def safe_line(error: Exception) -> int | None:
    """Return up to which line all is safe, of an error that says so."""
    return error.safe if isinstance(error, BadLine | LineGap | StreamEnded) else None
