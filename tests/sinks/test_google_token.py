"""Access tokens: when they are renewed, who waits, and what is said where there is none."""

import asyncio
import json
import logging
import time
from contextlib import asynccontextmanager

import pytest
from google.auth import _helpers

from pushlane.core.errors import BadInput
from pushlane.core.push import Outcome, Scope
from pushlane.dispatcher.sinks.google import (
    RENEW_AHEAD_S,
    TRY_AGAIN_S,
    AccessToken,
    read_credentials,
)
from tests.emulators.google_token import SCOPE, GoogleTokenServer, rsa_key

HOUR_S = 3600.0
BUSY = (503, {})


class Clock:
    """Real time, and what was added to it."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self):
        return time.time() + self.ahead_s


@asynccontextmanager
async def token_from(server, clock=time.time, **changes):
    text = json.dumps(server.service_account(**changes))
    token = AccessToken(read_credentials(text, SCOPE)[0], clock)
    try:
        yield token
    finally:
        await token.close()


async def refusal(server, **changes):
    """Why there is no token."""
    async with server.running(), token_from(server, **changes) as token:
        outcome = await token.fresh()
    assert outcome.refuses_us
    return outcome.reason


async def asked(server, times):
    """Wait until the server was asked so often."""
    while server.asked < times:
        await asyncio.sleep(0)


async def test_pushes_that_wait_share_one_request():
    server = GoogleTokenServer()
    async with server.running(), token_from(server) as token:
        assert token.present() == ""
        headers = await asyncio.gather(*(token.fresh() for _ in range(20)))
        assert (len(set(headers)), server.asked) == (1, 1)
        assert headers[0].removeprefix("Bearer ") in server.good
        assert token.present() == headers[0]


async def test_a_token_is_renewed_before_it_expires_and_nobody_waits():
    server, clock = GoogleTokenServer(), Clock()
    async with server.running(), token_from(server, clock) as token:
        first = await token.fresh()
        clock.ahead_s = HOUR_S - RENEW_AHEAD_S - 10
        assert (token.present(), server.asked) == (first, 1)
        server.gate.clear()
        clock.ahead_s = HOUR_S - RENEW_AHEAD_S + 10
        assert [token.present() for _ in range(5)] == [first] * 5
        await asked(server, 2)
        server.gate.set()
        second = await token.fresh()
        assert (second != first, server.asked) == (True, 2)
        assert token.present() == second


async def test_a_token_that_lives_shorter_than_that_is_renewed_at_half_its_life():
    server, clock = GoogleTokenServer(lifetime_s=60), Clock()
    async with server.running(), token_from(server, clock) as token:
        await token.fresh()
        clock.ahead_s = 20
        token.present()
        assert server.asked == 1
        clock.ahead_s = 40
        token.present()
        await asked(server, 2)


async def test_a_renewal_that_fails_is_a_warning_while_the_token_is_good(caplog):
    server, clock = GoogleTokenServer(), Clock()
    async with server.running(), token_from(server, clock) as token:
        first = await token.fresh()
        server.answers = [BUSY]
        clock.ahead_s = HOUR_S - 100
        with caplog.at_level(logging.WARNING, "pushlane.sinks"):
            assert token.present() == first
            await token.fresh()
        assert "cannot renew the access token" in caplog.text
        assert token.present() == first


@pytest.mark.parametrize(("later_s", "times"), [(TRY_AGAIN_S - 2, 2), (TRY_AGAIN_S + 1, 3)])
async def test_a_renewal_that_failed_is_tried_again_a_little_later(later_s, times):
    server, clock = GoogleTokenServer(), Clock()
    async with server.running(), token_from(server, clock) as token:
        first = await token.fresh()
        clock.ahead_s = HOUR_S - 100
        server.answers = [BUSY]
        await token.fresh()
        clock.ahead_s += later_s
        assert token.present() == first
        await token.close()  # once what was begun has ended
        assert server.asked == times


async def test_an_expired_token_is_not_used():
    server, clock = GoogleTokenServer(), Clock()
    async with server.running(), token_from(server, clock) as token:
        await token.fresh()
        clock.ahead_s = HOUR_S + 1
        assert token.present() == ""


async def test_many_refusals_of_one_token_take_one_other():
    server = GoogleTokenServer()
    async with server.running(), token_from(server) as token:
        first = await token.fresh()
        others = await asyncio.gather(*(token.fresh(instead_of=first) for _ in range(9)))
        others.append(await token.fresh(instead_of=first))
        assert (len(set(others)), server.asked) == (1, 2)
        assert first not in others


async def test_a_token_server_that_is_busy_or_away_is_about_the_sink():
    server = GoogleTokenServer()
    server.answers = [BUSY, (429, {})]
    async with server.running(), token_from(server) as token:
        outcomes = [await token.fresh(), await token.fresh()]
    async with token_from(server, token_uri="http://127.0.0.1:9/token") as token:
        outcomes.append(await token.fresh())
    assert {(one.scope, one.refuses_us) for one in outcomes} == {(Scope.SINK, False)}


async def test_a_key_that_is_not_the_accounts_any_more():
    reason = await refusal(GoogleTokenServer(), key=rsa_key(1))
    assert "invalid_grant" in reason
    assert "key was deleted or disabled; create a new one" in reason


async def test_an_account_that_was_deleted():
    server = GoogleTokenServer()
    server.accounts.clear()
    assert "service account was deleted" in await refusal(server)


async def test_a_clock_that_is_off_is_named():
    server = GoogleTokenServer()
    server.ahead_s = -7 * 60
    assert "our clock is 7 min ahead of theirs" in await refusal(server)


async def test_a_clock_of_ours_that_is_behind(monkeypatch):
    server, ours = GoogleTokenServer(), _helpers.utcnow
    monkeypatch.setattr(_helpers, "utcnow", lambda: ours() - _helpers.datetime.timedelta(hours=2))
    clock = Clock()
    clock.ahead_s = -2 * HOUR_S
    async with server.running(), token_from(server, clock) as token:
        outcome = await token.fresh()
    assert "set our clock by NTP; our clock is 120 min behind theirs" in outcome.reason


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ((400, {"error": "disabled_client"}), "(disabled_client)"),
        ((403, {"error": "secret-words"}), "(HTTP 403)"),
        ((401, ["no error"]), "(HTTP 401)"),
        ((200, {"nothing": 1}), "the credentials give none"),
    ],
)
async def test_no_word_of_the_server_but_known_codes_is_shown(answer, shown):
    server = GoogleTokenServer()
    server.answers = [answer]
    reason = await refusal(server)
    assert shown in reason
    assert "secret" not in reason


async def test_a_workload_gets_its_token_for_that_of_its_platform(tmp_path):
    platform = tmp_path / "token"
    platform.write_text("token-of-the-platform")
    server = GoogleTokenServer()
    async with server.running():
        server.answers = [(200, {"access_token": "a", "token_type": "Bearer", "expires_in": 600})]
        server.answers[0][1]["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
        credentials, project = read_credentials(json.dumps(workload(server, platform)), SCOPE)
        token = AccessToken(credentials)
        assert (await token.fresh(), project) == ("Bearer a", "")
        await token.close()


@pytest.mark.parametrize("file", ["missing", ""])  # the latter is the folder, which is no file
async def test_a_workload_without_its_file_is_refused(tmp_path, file):
    server = GoogleTokenServer()
    async with server.running():
        text = json.dumps(workload(server, tmp_path / file))
        token = AccessToken(read_credentials(text, SCOPE)[0])
        outcome = await token.fresh()
        await token.close()
    assert outcome == Outcome.refused(
        "no access token: the credentials give none; check what they name as their source"
    )


def workload(server, file):
    return {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/"
        "providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{server.url}/token",
        "credential_source": {"file": str(file)},
    }


def account(**changes):
    server = GoogleTokenServer()
    server.url = "http://127.0.0.1:1"
    return {k: v for k, v in server.service_account(**changes).items() if v is not None}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("not json", "are not a JSON object; create a key in the Firebase console"),
        ("[1]", "are not a JSON object"),
        ("/run/secrets/service-account.json", "give it as credentials_file"),
        (json.dumps({"type": "authorized_user"}), 'not of the type "service_account"'),
        (json.dumps({"project_info": {}, "client": []}), "an app's google-services.json"),
        (account(private_key=None), "have no private_key"),
        (account(client_email=""), "have no client_email"),
        (account(token_uri="nowhere"), "token_uri of the credentials is not a URL"),
        (account(private_key="-----BEGIN PRIVATE KEY-----abc"), "not an RSA key in PEM"),
        ({"type": "external_account"}, "create-cred-config"),
    ],
)
def test_credentials_that_cannot_be_used(text, told):
    text = text if isinstance(text, str) else json.dumps(text)
    with pytest.raises(BadInput, match="credentials") as caught:
        read_credentials(text, SCOPE)
    assert told in str(caught.value)
    assert "abc" not in str(caught.value)


def test_credentials_without_end_are_no_json():
    with pytest.raises(BadInput, match="credentials are not a JSON object"):
        read_credentials('{"a":' * 5_000, "scope")
