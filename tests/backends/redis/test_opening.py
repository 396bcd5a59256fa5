"""Connections over TLS: which authorities count, and URLs that would turn the check off."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.asyncio.sentinel import SentinelConnectionPool

from pushlane.backends.redis.access import RedisAccess
from pushlane.backends.redis.client import RedisClient, _Fresh, open_redis
from pushlane.core.errors import BadInput, Unreachable
from pushlane.util.tls import TlsFiles
from tests.certificates import Authority
from tests.tls_proxy import tls_in_front_of


def access(*files: Path) -> RedisAccess:
    return RedisAccess(TlsFiles("redis", *files))


@pytest.mark.parametrize("name", ["ssl_cert_reqs=none", "ssl_check_hostname=false"])
def test_a_url_that_turns_the_check_of_certificates_off_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"turns checks of certificates off with {name[:8]}"):
        RedisClient(f"rediss://127.0.0.1:1/0?{name}")


async def test_with_a_file_of_authorities_those_of_the_system_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "another")
    monkeypatch.setenv("SSL_CERT_FILE", str(theirs.ca))
    with tls_in_front_of(None, theirs.sign("redis", ["127.0.0.1"])) as port:
        client = RedisClient(f"rediss://127.0.0.1:{port}/0", access(ours.ca))
        with pytest.raises(Unreachable, match=f"not signed by an authority in {ours.ca}"):
            await client.ping()
        await client.close()


async def test_a_file_that_was_spoilt_while_we_run_is_named_and_waited_for(tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    client = RedisClient("rediss://127.0.0.1:1/0", access(ours.ca))
    ours.ca.write_text("no certificate")

    with pytest.raises(Unreachable, match=f"redis_ca_file {ours.ca} cannot be used"):
        await client.call("PING")
    await client.close()


def test_sentinels_are_asked_with_files_that_were_replaced_too() -> None:
    pool = open_redis("rediss+sentinel://h1,h2/main/0", access()).connection_pool

    assert isinstance(pool, SentinelConnectionPool)
    kinds = [each.connection_pool.connection_class for each in pool.sentinel_manager.sentinels]
    assert [issubclass(kind, _Fresh) for kind in (pool.connection_class, *kinds)] == [True] * 3


@pytest.mark.parametrize("url", ["redis://h/0", "redis+sentinel://h1,h2/main/0"])
def test_no_connection_looks_for_the_version_of_its_client(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr("redis.utils.metadata.version", looked.append)

    connection = open_redis(url, access()).connection_pool.make_connection()

    assert looked == []
    assert connection.driver_info.lib_version == redis.__version__
