"""Tokens of OAuth 2.0: when they are fetched, and what is said when there is none."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from pushlane.backends.pulsar import credentials as oauth2
from pushlane.backends.pulsar.credentials import OAuth2Credentials, credentials_of
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.settings import Settings
from pushlane.util.errors import Denied
from tests.emulators.token_issuer import TokenIssuer


@pytest.fixture
def issuer() -> TokenIssuer:
    numbers = itertools.count(1)
    return TokenIssuer(lambda: f"token-{next(numbers)}")


@pytest.fixture
def file(tmp_path: Path, issuer: TokenIssuer) -> Path:
    path = tmp_path / "client.json"
    path.write_text(issuer.client())
    return path


def of(url: str, file: Path, **more: str) -> OAuth2Credentials:
    names = {"issuer_url": url, "key_file": file, **more}
    given = {f"pulsar_oauth2_{name}": value for name, value in names.items()}
    credentials = credentials_of(Settings(**given))
    assert isinstance(credentials, OAuth2Credentials)
    return credentials


def replace(file: Path, text: str) -> None:
    new = file.with_name("new")
    new.write_text(text)
    os.replace(new, file)


async def test_a_token_is_fetched_once_while_it_is_good(issuer: TokenIssuer, file: Path) -> None:
    async with issuer.running():
        credentials = of(issuer.url, file, scope="lanes")

        tokens = [await credentials.fresh_token() for _ in range(3)]

    assert tokens == ["token-1"] * 3
    assert credentials.token() == "token-1"
    assert issuer.asked == [
        {
            "grant_type": "client_credentials",
            "client_id": "dispatch",
            "client_secret": "hush-hush",
            "scope": "lanes",
        }
    ]


async def test_a_token_is_renewed_before_it_expires(
    issuer: TokenIssuer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth2, "_KEPT_SHARE", 0.0)
    async with issuer.running():
        credentials = of(issuer.url, file)

        assert await credentials.fresh_token() == "token-1"
        assert await credentials.fresh_token() == "token-2"


async def test_a_token_that_is_good_stays_when_a_new_one_is_refused(
    issuer: TokenIssuer, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with issuer.running():
        credentials = of(issuer.url, file)
        await credentials.fresh_token()
        replace(file, issuer.client(client_secret="wrong one"))

        assert await credentials.fresh_token() == "token-1"

    assert "gives no token (status 401, invalid_client)" in caplog.text
    assert "wrong one" not in caplog.text


async def test_nobody_with_a_good_token_waits_for_an_issuer_that_is_silent(
    issuer: TokenIssuer, file: Path
) -> None:
    async with issuer.running():
        credentials = of(issuer.url, file)
        await credentials.fresh_token()
        replace(file, issuer.client())
        issuer.silent.set()
        renewal = asyncio.create_task(credentials.fresh_token())
        await issuer.reached.wait()

        assert await credentials.fresh_token() == "token-1"
        assert not renewal.done()
        renewal.cancel()


async def test_a_life_that_is_told_as_text_is_understood(issuer: TokenIssuer, file: Path) -> None:
    issuer.lifetime_s = "3599"
    async with issuer.running():
        assert await of(issuer.url, file).fresh_token() == "token-1"


async def test_without_a_good_token_a_refusal_is_an_error_each_time(
    issuer: TokenIssuer, file: Path
) -> None:
    issuer.clients = {}
    async with issuer.running():
        credentials = of(issuer.url, file)
        for _ in range(2):
            with pytest.raises(Denied, match=f"pulsar_oauth2_key_file {file}"):
                await credentials.fresh_token()

    assert credentials.token() == ""


async def test_a_file_that_was_spoilt_while_we_run_is_waited_for(
    issuer: TokenIssuer, file: Path
) -> None:
    """An error of the request would end a dispatcher."""
    issuer.lifetime_s = 0
    async with issuer.running():
        credentials = of(issuer.url, file)
        await credentials.fresh_token()
        replace(file, "not JSON")

        with pytest.raises(Denied, match=f"pulsar_oauth2_key_file {file} is not the JSON"):
            await credentials.fresh_token()


async def test_a_secret_goes_to_no_endpoint_of_another_scheme(
    issuer: TokenIssuer, file: Path
) -> None:
    async with issuer.running():
        issuer.endpoint = issuer.endpoint.replace("http://", "https://")
        with pytest.raises(Unreachable, match="another scheme: no secret is sent"):
            await of(issuer.url, file).fresh_token()

    assert issuer.asked == []


@pytest.mark.parametrize("content", ["not JSON", "[]", '{"client_id": "dispatch"}'])
async def test_a_file_of_no_client_is_named_and_not_shown(
    issuer: TokenIssuer, file: Path, content: str
) -> None:
    replace(file, content)
    async with issuer.running():
        with pytest.raises(BadInput, match=f"pulsar_oauth2_key_file {file} is not the JSON") as no:
            await of(issuer.url, file).fresh_token()

    assert content not in str(no.value)


@pytest.mark.parametrize("path", ["", "/elsewhere"])
async def test_an_issuer_that_is_none_is_named(issuer: TokenIssuer, file: Path, path: str) -> None:
    async with issuer.running():
        url = issuer.url + path
        if path == "":
            url = "http://127.0.0.1:1"
        with pytest.raises(PushlaneError, match=r"OAuth 2\.0 issuer at http://127\.0\.0\.1"):
            await of(url, file).fresh_token()
