"""Redis with TLS and access rules: who gets in, what others are told, and rotated passwords."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import redis

from pushlane.backends.operations import Beside, Roles
from pushlane.backends.redis import RedisPorts, connect_redis, refill
from pushlane.backends.redis.access import RedisAccess, redis_logins
from pushlane.backends.redis.client import RedisClient
from pushlane.core.errors import Unreachable
from pushlane.core.task import Weights
from pushlane.util.errors import Denied, MissingPermission, RefillRefused
from pushlane.util.files import WatchedFile
from pushlane.util.texts import Secret
from pushlane.util.tls import TlsFiles
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.world import WINDOW_S, new_task
from tests.certificates import Authority
from tests.own_redis import OwnRedis
from tests.tls_proxy import tls_in_front_of

ROLES = Roles("dispatcher", "writer", "pipeline")
PREFIX = "company/lanes"
PASSWORD = "hush-hush"
NO_FILES = TlsFiles("redis")


@pytest.fixture
def secured(own_redis: OwnRedis) -> OwnRedis:
    """A server with the users that `bootstrap --print` gives, and nobody else but its owner."""
    with redis.Redis.from_url(own_redis.url) as client:
        for login in redis_logins(PREFIX, ROLES):
            client.execute_command(*login.line.replace("PASSWORD", PASSWORD).split())
    return own_redis


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def access(role: str, password: str = PASSWORD, files: TlsFiles = NO_FILES) -> RedisAccess:
    return RedisAccess(files, role, Secret(password))


def opened(server: OwnRedis, role: str, journal: MemoryJournal):
    return connect_redis(server.url, PREFIX, journal, WINDOW_S, access=access(role))


async def refusal(url: str, access: RedisAccess) -> Unreachable:
    client = RedisClient(url, access)
    with pytest.raises(Unreachable) as refused:
        await client.ping()
    await client.close()
    return refused.value


async def answered(url: str, access: RedisAccess) -> None:
    client = RedisClient(url, access)
    await client.ping()
    await client.close()


async def test_writers_and_dispatchers_do_their_work_with_the_lines_of_their_roles(
    secured: OwnRedis,
) -> None:
    journal, task = MemoryJournal(), new_task(key="one")
    async with (
        opened(secured, ROLES.writer, journal) as writer,
        opened(secured, ROLES.dispatcher, journal) as dispatcher,
    ):
        await written(writer, task.id)
        await writer.registry.add(task)
        changes = await dispatcher.registry.changes(0, 5.0)
        fence = await dispatcher.lease.acquire("janitor", "me", 5.0)

        assert [one.id for one in changes.tasks] == [task.id]
        assert fence
        assert await dispatcher.ledger.claim([], "me", 1.0) == []


async def written(writer: RedisPorts, task_id: str) -> None:
    await writer.registry.set_weights(Weights(1, 2, 3))
    await writer.documents.put("kind", "name", b"body", None)
    await writer.presence.list()
    await writer.limiter.forget([f"task/{task_id}"])
    await writer.lease.acquire("submit", "me", 1.0)


async def test_a_dispatcher_follows_the_journal_and_a_writer_fills_from_it(
    secured: OwnRedis,
) -> None:
    journal = MemoryJournal()
    async with opened(secured, ROLES.dispatcher, journal) as dispatcher:
        task = await dispatcher.registry.add(new_task())
        await dispatcher.registry.keep_up()
    journal.records.clear()

    with pytest.raises(RefillRefused):
        await refill(secured.url, PREFIX, journal, access(ROLES.writer))
    await refill(secured.url, PREFIX, journal, access(ROLES.writer), Beside.KEPT)

    assert [*journal.records] == [task.id]


async def test_a_writer_reaches_no_claims_and_is_told_what_is_missing(secured: OwnRedis) -> None:
    client = RedisClient(secured.url, access(ROLES.writer))
    with pytest.raises(MissingPermission, match=r"let user writer .*ACL SETUSER"):
        await client.call("GET", f"{{{PREFIX}}}:claim:t-1")
    with pytest.raises(MissingPermission, match="writer"):
        await client.run("return redis.call('FLUSHALL')", [f"{{{PREFIX}}}:version"])
    await client.close()


async def test_a_wrong_password_names_user_and_settings(secured: OwnRedis) -> None:
    error = await refusal(secured.url, access(ROLES.writer, "guessed"))

    assert isinstance(error, Denied)
    assert "does not accept user writer with redis_password" in str(error)
    assert "guessed" not in str(error)


async def test_without_a_login_it_says_which_settings_are_for_it(secured: OwnRedis) -> None:
    with redis.Redis.from_url(secured.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "off")

    error = await refusal(secured.url, RedisAccess(NO_FILES))

    assert isinstance(error, Denied)
    assert "redis_user" in str(error)


async def test_a_rotated_password_is_taken_by_the_next_connection(
    secured: OwnRedis, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    watched = WatchedFile("redis_password_file", file)
    client = RedisClient(secured.url, RedisAccess(NO_FILES, ROLES.writer, None, watched))
    await client.ping()

    with redis.Redis.from_url(secured.url) as owner:
        owner.execute_command("ACL", "SETUSER", ROLES.writer, "resetpass", ">another")
        owner.client_kill_filter(_type="normal", user=ROLES.writer)
    with pytest.raises(Denied, match=f"redis_password_file {file}"):
        await client.ping()
    new = file.with_name("new")
    new.write_text("another")
    os.replace(new, file)

    await client.ping()
    await client.close()


async def test_tls_is_checked_and_what_is_wrong_is_said(
    secured: OwnRedis, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "another authority")
    right = TlsFiles("redis", authority.ca)
    good = authority.sign("redis", ["127.0.0.1"])
    foreign = authority.sign("foreign", ["redis.test"])
    with tls_in_front_of(secured.port, good) as port, tls_in_front_of(secured.port, foreign) as far:
        url, away = f"rediss://127.0.0.1:{port}/0", f"rediss://127.0.0.1:{far}/0"
        await answered(url, access(ROLES.writer, files=right))
        wrong_ca = await refusal(url, access(ROLES.writer, files=TlsFiles("redis", other.ca)))
        other_host = await refusal(away, access(ROLES.writer, files=right))

    assert f"not signed by an authority in {other.ca}" in str(wrong_ca)
    assert "for another host than 127.0.0.1" in str(other_host)


async def test_a_server_that_asks_for_a_certificate_gets_ours(
    secured: OwnRedis, authority: Authority
) -> None:
    pair, ours = authority.sign("redis", ["127.0.0.1"]), authority.sign("writer")
    with tls_in_front_of(secured.port, pair, asks_of=authority.ca) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        without = await refusal(url, access(ROLES.writer, files=TlsFiles("redis", authority.ca)))
        files = TlsFiles("redis", authority.ca, *ours)
        await answered(url, access(ROLES.writer, files=files))

    assert "set redis_cert_file and redis_key_file" in str(without)


async def test_a_certificate_that_was_replaced_is_shown_by_the_next_connection(
    secured: OwnRedis, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path / "other", "another authority").sign("writer")
    files = TlsFiles("redis", authority.ca, *foreign)
    ours = authority.sign("writer")
    pair = authority.sign("redis", ["127.0.0.1"])
    with tls_in_front_of(secured.port, pair, asks_of=authority.ca) as port:
        client = RedisClient(f"rediss://127.0.0.1:{port}/0", access(ROLES.writer, files=files))
        with pytest.raises(Unreachable):
            await client.ping()
        for new, old in zip(ours, foreign, strict=True):
            os.replace(new, old)

        await client.ping()
        await client.close()


@pytest.mark.parametrize(
    ("scheme", "path", "said"),
    [
        ("rediss", "/0", "speaks no TLS at this port"),
        ("redis+cluster", "", "does not answer as a Cluster"),
        ("redis+sentinel", "/lanes/0", "none of these sentinels names a master"),
    ],
)
async def test_a_url_of_another_kind_of_server_says_what_is_wrong(
    own_redis: OwnRedis, scheme: str, path: str, said: str
) -> None:
    url = f"{scheme}://127.0.0.1:{own_redis.port}{path}"

    assert said in str(await refusal(url, RedisAccess(NO_FILES)))
