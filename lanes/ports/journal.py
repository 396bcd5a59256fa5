"""The journal port: the durable record behind a fast registry."""

from __future__ import annotations

from typing import Protocol


class Journal(Protocol):
    """The durable record of a fast registry: written first, and read to rebuild the registry.

    The last body of a key is the one that counts; earlier ones may go. An empty body removes the
    key, and may go as well.
    """

    async def append(self, key: str, body: bytes) -> None:
        """Return once the body is durable."""

    async def replay(self) -> list[tuple[str, bytes]]:
        """Return every key that was not removed, with its last body, oldest append first.

        Removals are forgotten. So whoever fills an old copy from this has to remove every key that
        the copy has besides.
        """

    async def close(self) -> None:
        """Close the connection; everything appended stays."""
