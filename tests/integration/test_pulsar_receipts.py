"""The log of receipts on a real Pulsar: positions hold whatever the broker does with ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.ports import ReceiptLog
from pushlane.backends.pulsar import receipt_log as log_module
from pushlane.backends.pulsar.admin import Admin, topic_path
from pushlane.backends.pulsar.broker import Producers
from pushlane.backends.pulsar.policies import ensure_namespace, receipt_policies
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone
from tests.conftest import DEADLINE_S

pytestmark = pytest.mark.pulsar


@pytest.fixture
def settings(pulsar_settings: Settings) -> Settings:
    return pulsar_settings.but(**{"receipts_partitions": 1})


@asynccontextmanager
async def opened(settings: Settings, **given: object) -> AsyncIterator[ReceiptLog]:
    async with connect(settings.but(**given)) as backend:
        yield backend.receipts


async def unload(settings: Settings) -> None:
    """The broker closes the topic's ledger, as at a restart, and trims what it need not keep."""
    async with Admin(settings.admin_url, None) as admin:
        path = topic_path(f"{settings.namespace}-receipts", "receipts-partition-0")
        await admin.call("PUT", f"{path}/unload", "unload")


async def between(log: ReceiptLog, start: list[str], end: list[str]) -> list[bytes]:
    return [body async for page in log.read(0, start[0], end[0]) for body in page]


async def policies(settings: Settings) -> dict[str, object]:
    async with Admin(settings.admin_url, None) as admin:
        path = f"/namespaces/{settings.namespace}-receipts"
        reply = await admin.call("GET", path, "look", allow=(404,))
        return reply.value if reply.status == 200 else {}


async def test_positions_hold_over_ledgers(settings: Settings) -> None:
    async with opened(settings) as log:
        first = await log.first()
        await log.append([b"a", b"b"])
        middle = await log.advance(first)
        await unload(settings)
        await log.append([b"c"])

        end = await log.advance(middle)

        assert await between(log, first, end) == [b"a", b"b", b"c"]
        assert await between(log, middle, end) == [b"c"]
        assert await log.lag(first) == 3


async def test_the_first_position_of_a_new_log_outlives_its_empty_ledger(
    settings: Settings,
) -> None:
    async with opened(settings) as log:
        first = await log.first()
        await unload(settings)
        await log.append([b"a"])

        assert await between(log, first, await log.advance(first)) == [b"a"]


async def test_what_was_committed_and_trimmed_is_gone_and_the_rest_is_not(
    settings: Settings,
) -> None:
    async with opened(settings, receipts_retention_s=0) as log:
        first = await log.first()
        await log.append([b"a", b"b"])
        middle = await log.advance(first)
        await log.commit(middle)
        await unload(settings)
        await log.append([b"c"])

        assert await log.committed() == middle
        assert await between(log, middle, await log.advance(middle)) == [b"c"]
        with pytest.raises(ReceiptsGone, match="is not kept any more"):
            await log.advance(first)
        kept = await log.kept(first)
        assert await between(log, kept, await log.advance(kept)) == [b"c"]
        assert await log.kept(middle) == middle


async def test_what_is_not_committed_is_kept_without_any_retention(settings: Settings) -> None:
    async with opened(settings, receipts_retention_s=0) as log:
        first = await log.first()
        await log.append([b"a", b"b"])
        await unload(settings)

        assert await between(log, first, await log.advance(first)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("receipts", "policy"),
    [("on", "consumer_backlog_eviction"), ("required", "producer_exception")],
)
async def test_at_its_bound_the_log_does_what_the_settings_say(
    settings: Settings, receipts: str, policy: str
) -> None:
    async with opened(settings, receipts=receipts) as log:
        await log.first()

    found = await policies(settings)
    quota = found["backlog_quota_map"]["destination_storage"]
    assert quota["policy"] == policy
    assert quota["limitSize"] == settings.receipts_max_bytes


async def test_policies_that_are_as_they_should_be_are_left_alone(settings: Settings) -> None:
    async with opened(settings) as log:
        await log.first()

    async with _ReadOnly(settings.admin_url, None) as admin:
        namespace = f"{settings.namespace}-receipts"
        await ensure_namespace(admin, namespace, receipt_policies(settings))


class _ReadOnly(Admin):
    async def call(self, method: str, path: str, *args: object, **kwargs: object) -> object:
        assert method == "GET", f"{method} {path}"
        return await super().call(method, path, *args, **kwargs)


async def test_connecting_alone_makes_no_log(settings: Settings) -> None:
    async with connect(settings):
        pass

    assert await policies(settings) == {}


async def test_several_that_open_it_at_once_agree(settings: Settings) -> None:
    async with opened(settings) as one, opened(settings) as two, opened(settings) as three:
        secrets = await asyncio.gather(one.secret(), two.secret(), three.secret())

        assert len(set(secrets)) == 1


async def test_a_partition_that_does_not_answer_is_passed_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker may be gone, and nothing is settled until the log has the receipts."""
    publish, asked = Producers.publish, list[str]()

    async def never_on_the_first(of: Producers, lane: str, bodies: Sequence[bytes]) -> None:
        asked.append(lane)
        if lane == asked[0]:
            await asyncio.Future()
        await publish(of, lane, bodies)

    monkeypatch.setattr(Producers, "publish", never_on_the_first)
    async with opened(settings, receipts_partitions=2) as log:
        monkeypatch.setattr(log_module, "_NEXT_PARTITION_AFTER_S", 0.0)
        await log.append([b"a"])
        monkeypatch.setattr(log_module, "_NEXT_PARTITION_AFTER_S", DEADLINE_S)
        await log.append([b"b"])
        await log.append([b"c"])

        assert asked.count(asked[0]) == 1
        assert await log.lag(await log.first()) == 3
