"""Operations on dead pushes: list them, look at one, retry or purge them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from pushlane.client.connection import Connection
from pushlane.operations.dead import (
    DeadLetter,
    GetDead,
    ListDead,
    PurgeDead,
    RetriedView,
    RetryDead,
)

Age = float | timedelta | str
_LISTED = 100


class DeadOperations(Connection):
    """What can be done with dead pushes, each of which is named by its id, TASK-SEQ.

    They are chosen by all that is given: `task` by its id, key or name (`-` for messages that are
    no push), a part of the `reason`, and an age in seconds, as a timedelta or like `2h`. Each
    raises TaskConflict while another process looks through the dead pushes.
    """

    async def dead(
        self,
        *,
        task: str = "",
        reason: str = "",
        older_than: Age = 0,
        newer_than: Age = 0,
        limit: int = _LISTED,
    ) -> list[DeadLetter]:
        """List dead pushes, as they came to each lane, without what they hold; 0 is no limit."""
        wanted = ListDead.made(
            task=task,
            reason=reason,
            older_than_s=older_than,
            newer_than_s=newer_than,
            limit=limit,
        )
        return (await self.do(wanted)).dead

    async def dead_push(self, push: str) -> DeadLetter:
        """Return one dead push, with what it holds. Raises UserError when it is not dead."""
        return await self.do(GetDead.made(push=push, reveal=True))

    async def retry_dead(
        self,
        pushes: Iterable[str] | str = (),
        *,
        task: str = "",
        reason: str = "",
        older_than: Age = 0,
        newer_than: Age = 0,
        limit: int = 0,
        all_there_are: bool = False,
    ) -> list[RetriedView]:
        """Send dead pushes again, in a new task for each of their tasks; return what became of it.

        Raises BadInput when nothing chooses them, unless it is to be all there are.
        """
        wanted = RetryDead.made(
            pushes=pushes,
            task=task,
            reason=reason,
            older_than_s=older_than,
            newer_than_s=newer_than,
            limit=limit,
            all_there_are=all_there_are,
        )
        return await self.do(wanted)

    async def purge_dead(
        self,
        pushes: Iterable[str] | str = (),
        *,
        task: str = "",
        reason: str = "",
        older_than: Age = 0,
        newer_than: Age = 0,
        limit: int = 0,
        all_there_are: bool = False,
    ) -> int:
        """Delete dead pushes for good; return how many. Raises BadInput as `retry_dead` does."""
        wanted = PurgeDead.made(
            pushes=pushes,
            task=task,
            reason=reason,
            older_than_s=older_than,
            newer_than_s=newer_than,
            limit=limit,
            all_there_are=all_there_are,
        )
        return (await self.do(wanted)).purged
