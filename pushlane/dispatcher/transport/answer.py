"""What is heard of a request, and the port of the clients that post it.

No client follows a redirect, sends a request twice by itself, or keeps what a server answers.
What a status means is the sink's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

import msgspec

MOST_BODY = 64 * 1024
"""The most bytes that are read of an answer's body; a connection with a longer one is closed."""


class Answer(msgspec.Struct, gc=False):
    """An answer whose head came whole.

    `headers` has their names in small letters; of several of a name it has the first, and none
    that is not ASCII. `body` is empty where it broke off, did not end in time or was too long;
    of the first two `cut` says which: BROKEN, SILENT or STALLED.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    cut: Fate | None = None


class Fate(Enum):
    """What became of a request that no answer came to."""

    UNCONNECTED = auto()
    """No connection stood, of TCP or of TLS: nothing of it went out."""

    UNPROCESSED = auto()
    """The server said that it has not looked at it (RFC 9113, 8.7)."""

    SILENT = auto()
    """The head of no answer came in time."""

    STALLED = auto()
    """An answer began, and did not go on in time."""

    BROKEN = auto()
    """Its connection broke, or what came is no answer: it may have been read."""


class Lost(msgspec.Struct, gc=False):
    """A request that no answer came to; `why` no connection stood, for people to read.

    `in_time` is false where a connection took too long to stand.
    """

    fate: Fate
    why: str = ""
    in_time: bool = True


Heard: TypeAlias = Answer | Lost
Answered: TypeAlias = Callable[[Any, Heard], None]


class Transport(Protocol):
    """Posts requests to one origin (scheme, host and port). All is called on the loop's thread.

    `can_post` says whether it ever takes one by `post`.
    """

    can_post: bool

    def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        answered: Answered,
        token: Any,
    ) -> bool:
        """Write a request if that can be done now, and tell whether it was. Never blocks.

        After True, `answered(token, heard)` is called exactly once, and never before this has
        returned: what may have arrived is then the request's. After False nothing of it went out,
        and nothing is called: no connection is free, or its time has not come; use `send`.
        `path` is the rest of the URL. Raises BadInput for what no request may hold.
        """

    async def send(self, path: str, headers: Mapping[str, str], body: bytes) -> Heard:
        """Post a request, on a new connection if it has to be, and return what was heard of it.

        A cancellation ends its connection, or its stream alone where many share one. Raises
        BadInput for what no request may hold.
        """

    async def close(self) -> None:
        """Close the connections; what is under way is BROKEN."""


Addresses: TypeAlias = Callable[[], Sequence[str]]
"""The only addresses that may be connected to, asked for each connection and request."""


class OpenGuarded(Protocol):
    """Opens a transport to an origin, at addresses that were checked, never by a proxy."""

    def __call__(self, origin: str, *, addresses: Addresses) -> Transport: ...
