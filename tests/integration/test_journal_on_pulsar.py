"""The journal on a real Pulsar: it gives storage back, and keeps every key that was not removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import _pulsar
import pytest

from pushlane.backends.ports import JournalPage
from pushlane.backends.pulsar import journal as journal_module
from pushlane.backends.pulsar.admin import Admin, topic_path
from pushlane.backends.pulsar.connection import Connection, open_connection
from pushlane.backends.pulsar.journal import PulsarJournal
from pushlane.backends.pulsar.policies import (
    JOURNAL_COMPACTION_BYTES,
    JOURNAL_POLICIES,
    Policy,
    ensure_namespace,
)
from pushlane.settings import Settings

pytestmark = pytest.mark.pulsar

FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
PREFETCHED = 1_000  # by a reader of the client
BODY_BYTES = 256 * 1024
SHRINKS_WITHIN_S = 30.0


class Scene:
    """A namespace of the test's own, with a journal."""

    def __init__(self, connection: Connection, admin: Admin, namespace: str) -> None:
        self.connection = connection
        self.admin = admin
        self.namespace = f"{namespace}-registry"
        self.topic = topic_path(self.namespace, "tasks")
        self.journal = PulsarJournal(connection, admin, self.namespace)

    async def make(self, policies: tuple[Policy, ...] = JOURNAL_POLICIES) -> None:
        await ensure_namespace(self.admin, self.namespace, policies)
        await self.journal.open()

    async def append(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """All at once, which the journal keeps in their order."""
        await asyncio.gather(*(self.journal.append(key, body) for key, body in pairs))

    async def position(self) -> bytes:
        """Where a reading ends."""
        return [page async for page in self.journal.pages()][-1].position

    async def compact(self) -> None:
        await self.admin.call("PUT", f"{self.topic}/compaction", "compact")
        status = ""
        while status != "SUCCESS":
            status = (await self.look("compaction"))["status"]
            assert status != "ERROR"

    async def close_ledger(self) -> None:
        """Have the broker load the topic anew, which begins a ledger, and trim those before."""
        await self.admin.call("PUT", f"{self.topic}/unload", "unload")
        await self.trim()

    async def trim(self) -> None:
        await self.admin.insist("POST", f"{self.topic}/trim", "trim")

    async def look(self, at: str) -> dict[str, Any]:
        return await self.admin.read(f"{self.topic}/{at}", "look", dict[str, Any])

    async def stored_bytes(self) -> int:
        return int((await self.look("stats"))["storageSize"])


@asynccontextmanager
async def scene_on(settings: Settings) -> AsyncIterator[Scene]:
    async with Admin(settings.admin_url, None) as admin, open_connection(settings) as connection:
        scene = Scene(connection, admin, settings.namespace)
        yield scene
        await scene.journal.close()


def keys(count: int, first: int = 0) -> list[str]:
    return [f"key-{number}" for number in range(first, first + count)]


def more_than(kept_bytes: int) -> int:
    """So many bodies are more than that, however well they are compressed."""
    return kept_bytes // BODY_BYTES + 1


async def test_it_keeps_the_last_body_of_every_key_in_order(pulsar_settings: Settings) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make()
        assert await scene.journal.replay() == []

        await scene.append([("a", b"1"), ("b", b"1"), ("c", b"1"), ("a", b"2"), ("c", b"")])

        assert await scene.journal.replay() == [("b", b"1"), ("a", b"2")]


async def test_it_reads_the_same_after_its_compaction(pulsar_settings: Settings) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make()
        await scene.append((f"key-{number % 5}", b"%d" % number) for number in range(50))
        before = await scene.journal.replay()

        await scene.compact()

        await scene.append([("key-0", b"last")])
        assert before == [(key, b"%d" % (45 + number)) for number, key in enumerate(keys(5))]
        assert await scene.journal.replay() == [*before[1:], ("key-0", b"last")]


async def test_it_is_followed_from_where_a_reading_ended(pulsar_settings: Settings) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make()
        assert await scene.position() == b""
        await scene.append([("a", b"1"), ("b", b"1")])
        place = await scene.position()

        async with aclosing(scene.journal.follow(place)) as pages:
            assert await anext(pages) == JournalPage([], position=place)
            await scene.append([("a", b"2"), ("b", b"")])
            page = await anext(pages)
            assert page.records == [("a", b"2"), ("b", b"")]
            assert await anext(pages) == JournalPage([], position=page.position)
            await scene.append([("c", b"1")])
            assert (await anext(pages)).records == [("c", b"1")]

        async with aclosing(scene.journal.follow(page.position)) as pages:
            assert (await anext(pages)).records == [("c", b"1")]
        async with aclosing(scene.journal.follow(b"")) as pages:
            assert len((await anext(pages)).records) == 5


async def test_who_follows_from_a_place_that_is_trimmed_misses_no_key(
    pulsar_settings: Settings,
) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make()
        await scene.append([("a", b"1")])
        place = await scene.position()
        await scene.append([("b", b"1"), ("c", b"1"), ("b", b"2")])
        await scene.close_ledger()
        more = more_than(2 * JOURNAL_COMPACTION_BYTES)
        await scene.append(("other", os.urandom(BODY_BYTES)) for _ in range(more))
        await scene.close_ledger()
        await scene.append([("other", b""), ("d", b"1"), ("e", b"")])
        await scene.compact()
        await scene.close_ledger()

        async with aclosing(scene.journal.follow(place)) as pages:
            records = (await anext(pages)).records
            assert dict(records) == {"c": b"1", "b": b"2", "d": b"1"}
            assert (await anext(pages)).records == []
            await scene.append([("e", b"1")])
            assert (await anext(pages)).records == [("e", b"1")]


async def test_it_shrinks_to_what_lives_and_a_margin(pulsar_settings: Settings) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make()
        live = [(key, os.urandom(BODY_BYTES)) for key in keys(4)]
        await scene.append((key, os.urandom(BODY_BYTES)) for _ in range(8) for key in keys(8))
        await scene.append(live)
        await scene.close_ledger()  # nothing of this one is written again
        more = more_than(2 * JOURNAL_COMPACTION_BYTES)
        await scene.append((f"other-{n % 8}", os.urandom(BODY_BYTES)) for n in range(more))
        await scene.close_ledger()
        await scene.append(
            (key, b"") for key in [*keys(4, first=4), *map("other-{}".format, range(8))]
        )
        before_bytes = await scene.stored_bytes()
        assert await scene.journal.replay() == live

        await scene.compact()
        await scene.close_ledger()
        async with asyncio.timeout(SHRINKS_WITHIN_S):
            while await scene.stored_bytes() >= before_bytes:
                await scene.trim()

        assert await scene.journal.replay() == live
        assert (await scene.look("internalStats"))["compactedLedger"]["entries"] == len(live)
        await scene.compact()  # again, from the compacted copy alone
        await scene.append([("key-0", b"last")])
        assert await scene.journal.replay() == [*live[1:], ("key-0", b"last")]


async def test_nothing_is_trimmed_before_it_was_compacted(pulsar_settings: Settings) -> None:
    not_heard_of_all = tuple(p for p in JOURNAL_POLICIES if p.path != "compactionThreshold")
    async with scene_on(pulsar_settings) as scene:
        await scene.make(not_heard_of_all)
        live = [(key, os.urandom(BODY_BYTES)) for key in keys(4)]
        await scene.append(live)
        await scene.close_ledger()
        more = more_than(2 * JOURNAL_COMPACTION_BYTES)
        await scene.append(("other", os.urandom(BODY_BYTES)) for _ in range(more))
        await scene.append([("other", b"")])

        await scene.close_ledger()

        assert await scene.journal.replay() == live


async def test_one_that_was_made_to_keep_all_is_changed(pulsar_settings: Settings) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make(tuple(_kept_for_ever(policy) for policy in JOURNAL_POLICIES))
        await scene.append([("a", b"1")])

        await scene.make()

        path = f"/namespaces/{scene.namespace}"
        found = await scene.admin.read(path, "look", dict[str, Any])
        assert found["retention_policies"] != FOR_EVER
        assert "__compaction" in (await scene.look("internalStats"))["cursors"]
        assert await scene.journal.replay() == [("a", b"1")]


def _kept_for_ever(policy: Policy) -> Policy:
    return policy._replace(value=FOR_EVER) if policy.path == "retention" else policy


async def test_a_compaction_during_a_replay_only_delays_it(
    pulsar_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_on(pulsar_settings) as scene:
        await scene.make()
        live = [(key, b"1") for key in keys(2 * PREFETCHED)]
        await scene.append([*live, ("gone", b"1"), ("gone", b"")])
        overtaken = _Overtaken(scene, scene.compact())
        monkeypatch.setattr(journal_module, "OPERATION_TIMEOUT_S", 1)

        assert await overtaken.replay() == live

        assert overtaken.readers == 2


class _Overtaken(PulsarJournal):
    """Something is done once its first reader has begun to read."""

    def __init__(self, scene: Scene, meanwhile: Awaitable[None]) -> None:
        super().__init__(scene.connection, scene.admin, scene.namespace)
        self.readers = 0
        self._meanwhile = meanwhile
        self._loop = asyncio.get_running_loop()

    def _open_reader(self, *given: Any, **more: Any) -> _pulsar.Reader:
        reader = super()._open_reader(*given, **more)
        self.readers += 1
        if self.readers == 1:
            assert reader.has_message_available()
            asyncio.run_coroutine_threadsafe(_all_of(self._meanwhile), self._loop).result()
        return reader


async def _all_of(work: Awaitable[None]) -> None:
    await work
