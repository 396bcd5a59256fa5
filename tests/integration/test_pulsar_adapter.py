"""What only the Pulsar adapter promises, on a real Pulsar and Redis: nothing that is repeated is
kept, policies are as they should be, and lanes end for everybody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import _pulsar
import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.backends.ports import Broker
from pushlane.backends.pulsar.admin import Admin
from pushlane.backends.pulsar.broker import ProducerKey, Producers
from pushlane.backends.pulsar.connection import open_connection
from pushlane.backends.pulsar.policies import JOURNAL_POLICIES, ensure_namespace, lane_policies
from pushlane.backends.pulsar.reader import PulsarReader
from pushlane.backends.queries import Browser
from pushlane.core.errors import OutdatedFormat, TaskConflict, UnknownLane
from pushlane.core.ports import LaneReader, Source, Taken
from pushlane.core.push import Push, encode
from pushlane.settings import Settings
from pushlane.util.errors import OversizedPush
from pushlane.wire import MOST_BYTES, bodies_of, packed

pytestmark = pytest.mark.pulsar

DEADLINE_S = 200
SOURCE = "submit-1"
BATCH = 32


@dataclass
class Scene:
    """A namespace of the test's own, and as many processes' connections to it as it asks for."""

    settings: Settings
    stack: AsyncExitStack

    async def connect(self) -> Backend:
        return await self.stack.enter_async_context(connect(self.settings))

    async def admin(self) -> Admin:
        return await self.stack.enter_async_context(Admin(self.settings.admin_url, None))


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture
def play(pulsar_settings: Settings) -> Play:
    def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
        settings = pulsar_settings.but(**{"batch": BATCH, "prefetch": 2 * BATCH})

        async def scene() -> None:
            async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
                await scenario(Scene(settings, stack))

        asyncio.run(scene())

    return run


class Reading:
    """A reader whose messages a test waits for."""

    def __init__(self) -> None:
        self.reader: LaneReader | None = None
        self._ready = asyncio.Event()

    @classmethod
    async def of(cls, broker: Broker, lane: str) -> Reading:
        reading = cls()
        reading.reader = await broker.read(lane, lambda _: reading._ready.set())
        return reading

    async def take(self, count: int) -> list[Taken]:
        assert self.reader is not None
        taken: list[Taken] = []
        while len(taken) < count:
            one = self.reader.take()
            if one is not None:
                taken.append(one)
                continue
            await self._ready.wait()
            self._ready.clear()
        return taken

    async def close(self) -> None:
        assert self.reader is not None
        await self.reader.close()


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def bodies(taken: list[Taken]) -> list[bytes]:
    return [one.body for one in taken]


def test_a_lane_that_is_sent_nothing_any_more_is_read_anew(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the broker has forgotten to read on: here an answer of the client gets lost."""
    monkeypatch.setattr("pushlane.backends.pulsar.stalls._FIRST_LOOK_S", 0.2)
    monkeypatch.setattr("pushlane.backends.pulsar.stalls._EVERY_S", 0.2)
    arrived, lost = PulsarReader._arrived, []

    def lose_one(reader: PulsarReader, *answer: object) -> None:
        if lost:
            return arrived(reader, *answer)
        return lost.append(answer)

    monkeypatch.setattr(PulsarReader, "_arrived", lose_one)

    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("lane")
        reading = await Reading.of(broker, "lane")
        await broker.publish("lane", numbered(1, 20))

        found = bodies(await reading.take(20))

        assert sorted(found) == sorted(numbered(1, 20))
        assert lost
        assert "it is read anew" in caplog.text

    play(scenario)


MARK = b"the end"


async def all_of(broker: Broker, lane: str) -> list[bytes]:
    """Everything on the lane, up to a mark that is put on it now."""
    await broker.publish(lane, [MARK])
    reading = await Reading.of(broker, lane)
    found: list[bytes] = []
    while MARK not in found:
        found += bodies(await reading.take(1))
    await reading.close()
    return found[:-1]


def from_source(first: int, last: int) -> Source:
    return Source(SOURCE, range(first, last + 1))


def test_bodies_published_again_on_a_new_connection_are_kept_once(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        first = (await scene.connect()).broker
        await first.open_lane("a")
        await first.publish("a", numbered(1, 100), source=from_source(1, 100))
        await first.close()

        second = (await scene.connect()).broker
        await second.publish("a", numbered(1, 64), source=from_source(1, 64))
        await second.publish("a", numbered(65, 100), source=from_source(65, 100))

        assert await all_of(second, "a") == numbered(1, 100)

    play(scenario)


def test_a_submit_that_stopped_half_way_goes_on_with_nothing_lost_or_doubled(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        first = (await scene.connect()).broker
        await first.open_lane("a")
        await first.publish("a", numbered(1, 64), source=from_source(1, 64))
        await first.close()

        second = (await scene.connect()).broker
        await second.publish("a", numbered(1, 200), source=from_source(1, 200))

        assert await all_of(second, "a") == numbered(1, 200)

    play(scenario)


def test_bundles_of_large_pushes_published_again_are_kept_once(play: Play) -> None:
    large = [encode(Push("a", seq, "to", body="x" * (MOST_BYTES // 5))) for seq in range(1, 49)]

    async def publish(broker: Broker, pushes: list[bytes]) -> None:
        bundles = list(packed(pushes, BATCH))
        source = Source(SOURCE, [bundle.last_seq for bundle in bundles])
        await broker.publish("a", [bundle.message for bundle in bundles], source=source)

    async def scenario(scene: Scene) -> None:
        first = (await scene.connect()).broker
        await first.open_lane("a")
        await publish(first, large)
        await first.close()

        second = (await scene.connect()).broker
        await publish(second, large[:32])
        await publish(second, large[32:])

        found = await all_of(second, "a")
        assert [one for message in found for one in bodies_of(message)] == large

    play(scenario)


def test_two_submits_of_one_source_at_once_are_a_conflict(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        first, second = (await scene.connect()).broker, (await scene.connect()).broker
        await first.open_lane("a")
        await first.publish("a", numbered(1, 32), source=from_source(1, 32))

        with pytest.raises(TaskConflict, match=f"{SOURCE}.*under way"):
            await second.publish("a", numbered(1, 32), source=from_source(1, 32))

    play(scenario)


def test_a_source_that_is_closed_lets_another_process_go_on_under_its_name(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        first, second = (await scene.connect()).broker, (await scene.connect()).broker
        await first.open_lane("a")
        await first.publish("a", numbered(1, 32), source=from_source(1, 32))
        await first.close_source("a", SOURCE)

        await second.publish("a", numbered(1, 40), source=from_source(1, 40))

        assert await all_of(second, "a") == numbered(1, 40)

    play(scenario)


def test_what_is_published_again_with_other_delays_is_kept_once(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        for delay_s in ([0.0, 0.3, 0.0, 0.6], [0.2, 0.5, 0.0, 0.8]):
            await broker.publish("a", numbered(1, 4), delay_s=delay_s, source=from_source(1, 4))
        await broker.publish("a", [b"5"], delay_s=1.0, source=from_source(5, 5))

        reading = await Reading.of(broker, "a")
        taken = await reading.take(5)

        assert sorted(bodies(taken)) == numbered(1, 5)
        assert await broker.backlog("a") == 5

    play(scenario)


def test_bodies_without_a_source_are_never_taken_for_repeats(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        for _ in range(2):
            await broker.publish("a", numbered(1, 40))

        assert await all_of(broker, "a") == numbered(1, 40) * 2

    play(scenario)


def test_a_body_that_no_broker_takes_is_refused_and_the_lane_still_works(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")

        with pytest.raises(OversizedPush):
            await broker.publish("a", [bytes(6 * 1024 * 1024)])

        await broker.publish("a", [b"1"])
        assert await all_of(broker, "a") == [b"1"]

    play(scenario)


def test_many_publishes_at_once_share_a_producer_and_all_arrive(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        await asyncio.gather(*(broker.publish("a", [body]) for body in numbered(1, 300)))

        assert sorted(await all_of(broker, "a")) == sorted(numbered(1, 300))

    play(scenario)


def test_a_delayed_message_is_never_early(play: Play) -> None:
    delay_s = 0.5

    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        reading = await Reading.of(broker, "a")
        for _ in range(3):
            published_at = time.time()
            await broker.publish("a", [b"later"], delay_s=delay_s)
            await broker.ack(await reading.take(1))

            assert time.time() - published_at >= delay_s

    play(scenario)


async def publish_as_one_batch(scene: Scene, lane: str, bodies: list[bytes]) -> None:
    """As versions before 0.2.0 did."""
    client = _pulsar.Client(scene.settings.broker, _pulsar.ClientConfiguration())
    configuration = _pulsar.ProducerConfiguration()
    configuration.batching_enabled(True)
    configuration.batching_max_messages(len(bodies))
    configuration.batching_max_publish_delay_ms(600_000)
    topic = f"persistent://{scene.settings.namespace}/{lane}"
    producer = await asyncio.to_thread(client.create_producer, topic, configuration)
    for body in bodies:
        producer.send_async(_pulsar.MessageBuilder().content(body).build(), lambda *_: None)
    await asyncio.to_thread(producer.flush)
    await asyncio.to_thread(client.close)


def test_messages_of_a_batch_are_marked_as_what_is_not_read(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        await publish_as_one_batch(scene, "a", numbered(1, BATCH))
        await broker.publish("a", [b"alone"])

        reading = await Reading.of(broker, "a")
        taken = await reading.take(BATCH + 1)

        assert bodies(taken) == [*numbered(1, BATCH), b"alone"]
        assert [one.is_part for one in taken] == [True] * BATCH + [False]

    play(scenario)


def test_a_lane_with_such_a_batch_is_not_looked_through(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        await publish_as_one_batch(scene, "a", numbered(1, BATCH))

        with pytest.raises(OutdatedFormat, match="lane a is in a form from before release"):
            async with Browser(broker, "a") as browser:
                await browser.page()

        assert await all_of(broker, "a") == numbered(1, BATCH)

    play(scenario)


async def _has_left(broker: Broker, lane: str, count: int) -> bool:
    return await broker.backlog(lane) == count


@pytest.mark.parametrize("compression", ["lz4", "zstd", "snappy", "zlib"])
def test_what_is_compressed_comes_back_as_it_was(play: Play, compression: str) -> None:
    large = [bytes(range(256)) * 400, b"x" * 100_000]

    async def scenario(scene: Scene) -> None:
        scene.settings = scene.settings.but(**{"compression": compression})
        broker = (await scene.connect()).broker
        await broker.open_lane("a")
        await broker.publish("a", large)

        assert await all_of(broker, "a") == large
        admin = await scene.admin()
        path = f"/persistent/{scene.settings.namespace}/a/stats"
        stats = (await admin.call("GET", path, "look")).value
        assert stats["bytesInCounter"] < 50_000

    play(scenario)


def test_a_reader_that_takes_nothing_holds_back_no_more_than_half_of_its_depth_and_one(
    play: Play,
) -> None:
    async def scenario(scene: Scene) -> None:
        idle, busy = (await scene.connect()).broker, (await scene.connect()).broker
        await idle.open_lane("a")
        await Reading.of(idle, "a")
        total, held = 20 * BATCH, BATCH + 1
        reading = await Reading.of(busy, "a")

        await busy.publish("a", numbered(1, total))

        assert len(await reading.take(total - held)) == total - held

    play(scenario)


def test_a_lane_held_only_by_somebodys_idle_producer_can_be_dropped(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        ours, theirs = (await scene.connect()).broker, (await scene.connect()).broker
        await ours.open_lane("a")
        await theirs.publish("a", [b"1"])

        assert await ours.drop_lane("a")

        assert await ours.lanes() == []
        with pytest.raises(UnknownLane):
            await theirs.publish("a", [b"2"])

    play(scenario)


def test_a_lane_dropped_by_force_does_not_come_back_for_its_readers(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        ours, theirs = (await scene.connect()).broker, (await scene.connect()).broker
        await ours.open_lane("a")
        reading = await Reading.of(theirs, "a")
        assert not await ours.drop_lane("a")

        assert await ours.drop_lane("a", force=True)

        with pytest.raises(UnknownLane):
            await theirs.read("a", lambda _: None)
        assert await ours.lanes() == []
        await reading.close()

    play(scenario)


def test_connecting_many_at_once_makes_the_namespaces_with_their_policies(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.gather(*(scene.connect() for _ in range(4)))

        admin = await scene.admin()
        path = f"/namespaces/{scene.settings.namespace}"
        lanes = (await admin.call("GET", path, "look")).value
        journal = (await admin.call("GET", f"{path}-registry", "look")).value
        assert lanes["deduplicationEnabled"] is True
        assert lanes["autoTopicCreationOverride"]["allowAutoTopicCreation"] is False
        assert lanes["message_ttl_in_seconds"] == 0
        quota = lanes["backlog_quota_map"]["destination_storage"]
        assert quota["policy"] == "producer_exception"
        assert journal["retention_policies"]["retentionTimeInMinutes"] == -1
        assert journal["compaction_threshold"] > 0

    play(scenario)


def test_the_policies_that_were_set_are_found_as_they_should_be(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.connect()
        refusing = _ReadOnly(scene.settings.admin_url, None)

        async with refusing as admin:
            await ensure_namespace(admin, scene.settings.namespace, lane_policies(scene.settings))
            journal = f"{scene.settings.namespace}-registry"
            await ensure_namespace(admin, journal, JOURNAL_POLICIES)

    play(scenario)


class _ReadOnly(Admin):
    async def call(self, method: str, path: str, *args: object, **kwargs: object) -> object:
        assert method == "GET", f"{method} {path}"
        return await super().call(method, path, *args, **kwargs)


def test_producers_over_the_limit_are_closed_but_none_in_use(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        broker = (await scene.connect()).broker
        await asyncio.gather(*(broker.open_lane(f"lane-{number}") for number in range(5)))
        async with open_connection(scene.settings) as connection:
            producers = Producers(connection, scene.settings.namespace, limit=2)
            async with producers.borrow(ProducerKey("lane-0", "")) as held:
                for number in range(1, 5):
                    async with producers.borrow(ProducerKey(f"lane-{number}", "")):
                        pass

                assert len(producers) == 2
                assert held.raw is not None
                assert held.raw.is_connected()

    play(scenario)
