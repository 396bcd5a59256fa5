"""What is said of TLS that fails: each server here is set up wrong in one way."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.core.errors import BadInput
from pushlane.util.tls import TlsFiles, tls_problem, url_tls_problem
from tests.certificates import Authority
from tests.tls_proxy import tls_in_front_of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


async def problem(port: int, files: TlsFiles) -> str:
    return await tls_problem("127.0.0.1", port, files)


async def test_a_server_of_our_authority_has_no_problem(authority: Authority) -> None:
    with tls_in_front_of(None, authority.sign("server", ["127.0.0.1"])) as port:
        assert await problem(port, TlsFiles("pulsar", authority.ca)) == ""


async def test_a_certificate_for_another_host_names_ours(authority: Authority) -> None:
    with tls_in_front_of(None, authority.sign("server", ["broker.test"])) as port:
        said = await problem(port, TlsFiles("pulsar", authority.ca))

    assert "for another host than 127.0.0.1" in said


async def test_an_unknown_authority_names_the_file_that_was_asked(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "another authority")
    with tls_in_front_of(None, authority.sign("server", ["127.0.0.1"])) as port:
        said = await problem(port, TlsFiles("redis", other.ca))
        default = await problem(port, TlsFiles("redis"))

    assert f"not signed by an authority in {other.ca}" in said
    assert "authority that this system trusts" in default
    assert "redis_ca_file" in default


async def test_an_expired_certificate_is_called_so(authority: Authority) -> None:
    with tls_in_front_of(None, authority.sign("server", ["127.0.0.1"], days=-1)) as port:
        said = await problem(port, TlsFiles("pulsar", authority.ca))

    assert "its certificate has expired" in said


async def test_a_server_that_asks_for_our_certificate_says_which_settings(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.sign("server", ["127.0.0.1"])
    ours = authority.sign("writer")
    foreign = Authority(tmp_path / "other", "another authority").sign("writer")
    with tls_in_front_of(None, pair, asks_of=authority.ca) as port:
        without = await problem(port, TlsFiles("pulsar", authority.ca))
        wrong = await problem(port, TlsFiles("pulsar", authority.ca, *foreign))
        right = await problem(port, TlsFiles("pulsar", authority.ca, *ours))

    assert "set pulsar_cert_file and pulsar_key_file" in without
    assert f"does not accept our certificate {foreign.cert}" in wrong
    assert right == ""


async def test_a_server_without_tls_is_called_so(authority: Authority) -> None:
    with tls_in_front_of(None, None) as port:
        said = await problem(port, TlsFiles("pulsar", authority.ca))

    assert "speaks no TLS at this port" in said


async def test_a_server_that_is_not_there_has_no_problem_with_tls(authority: Authority) -> None:
    files = TlsFiles("pulsar", authority.ca)

    assert await tls_problem("127.0.0.1", 1, files) == ""
    assert await url_tls_problem("pulsar://127.0.0.1:1", files) == ""


async def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    one, other = authority.sign("one"), authority.sign("other")

    with pytest.raises(BadInput, match=r"pulsar_cert_file .*one\.pem cannot be used"):
        TlsFiles("pulsar", authority.ca, one.cert, other.key).check_pair()
