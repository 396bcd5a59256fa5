"""Guards a Redis that has tasks which the journal lacks: a journal may be new, or a Redis old.

Without it a journal whose topic was made anew would empty a good registry at the next failover.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Container, Mapping
from typing import Any

from pushlane.backends.redis.client import RedisClient, numbers_only, words
from pushlane.backends.redis.keys import Keys
from pushlane.core.errors import RefillRefused
from pushlane.lanes.ports import Journal
from pushlane.lanes.rebuilding import is_loss, refusal

REFUSED_MS = 30_000
"""Meanwhile nobody reads the journal to no end."""

_IDS_A_CALL = 1_000
_TASKS_A_CALL = 200


class RefillGuard:
    """Refuses to fill a registry from a journal that lacks unfinished tasks of it."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def unfinished(self) -> int:
        """Return how many unfinished tasks Redis has."""
        return await self._client.call("SCARD", self._keys.active, read=numbers_only) or 0

    async def check(self, unfinished: int, known: Collection[str], removed: Container[str]) -> None:
        """Let the fill go on that removes what is not known to the journal.

        `unfinished` is how many Redis had before, `removed` are those that the journal says to be
        gone: they are not lost.

        Raises:
            RefillRefused: it would lose more than few; the registry stays as it is, not ready.
        """
        lost = {
            task_id
            async for task_id in self._active()
            if task_id not in known and task_id not in removed
        }
        if not is_loss(len(lost), unfinished, is_journal_empty=not known):
            return
        text = refusal(self._client.where, len(lost), max(unfinished, len(lost)))
        await self._client.call("SET", self._keys.refused, text, "PX", REFUSED_MS)
        raise RefillRefused(text)

    async def journal_tasks(
        self,
        journal: Journal,
        stored: AsyncIterable[Mapping[str, bytes]],
        known: set[str],
        removed: Container[str],
    ) -> None:
        """Journal the stored tasks that are not known to it, as they are, and add them to these."""
        async for page in stored:
            for task_id, body in page.items():
                if task_id not in known and task_id not in removed:
                    await journal.append(task_id, body)
                    known.add(task_id)

    async def journal_documents(
        self, journal: Journal, prefix: str, documents: dict[str, bytes]
    ) -> None:
        """Journal the documents that are not among these, and add them."""
        with self._client.reach():
            stored = {
                field.decode(): value
                async for field, value in self._client.redis.hscan_iter(self._keys.documents)
            }
        for field in stored.keys() - documents.keys():
            documents[field] = stored[field].partition(b"\n")[2]
            await journal.append(prefix + field, documents[field])

    async def journal_weights(self, journal: Journal, key: str) -> bytes:
        """Journal the weights, and return them; empty when none are set."""
        weights: bytes = await self._client.call("GET", self._keys.weights) or b""
        if weights:
            await journal.append(key, weights)
        return weights

    async def _active(self) -> AsyncIterator[str]:
        with self._client.reach():
            async for task_id in self._client.redis.sscan_iter(
                self._keys.active, count=_IDS_A_CALL
            ):
                yield task_id.decode()


async def stored_tasks(client: RedisClient, keys: Keys) -> AsyncIterator[dict[str, bytes]]:
    """Yield all tasks that Redis has, in pages; a task may come twice."""
    cursor, is_over = 0, False
    while not is_over:
        cursor, page = await client.call(
            "HSCAN", keys.tasks, cursor, "COUNT", _TASKS_A_CALL, read=_page
        )
        is_over = cursor == 0
        if page:
            yield page


def _page(answer: Any) -> tuple[int, dict[str, bytes]]:
    cursor, found = answer
    words([*found, *found.values()])
    return int(cursor), {task_id.decode(): body for task_id, body in found.items()}
