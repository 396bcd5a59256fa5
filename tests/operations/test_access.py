"""Tokens: what they open, for how long, and that nothing shows them again."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane import BadInput, Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.task import now_ms
from pushlane.model import access
from pushlane.model.access import Access, Role
from pushlane.operations.access import (
    CreateToken,
    GetIssuer,
    GetMode,
    ListTokens,
    NewTokenView,
    RevokeToken,
    RotateToken,
    SetMode,
)
from pushlane.operations.doing import do
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.shares import SetLevels
from pushlane.operations.views import plain
from pushlane.util.errors import NotFound, NotNow, Unauthorized

ADMIN = Caller("ada", "cli")


async def made(backend: Backend, **given: Any) -> NewTokenView:
    wanted = CreateToken.made(**{"name": "shop", "grants": "submitter", **given})
    return await do(backend, Settings(), ADMIN, wanted)


async def opens(backend: Backend, text: str, later_ms: int = 0) -> bool:
    try:
        await access.check(backend.documents, text, now_ms() + later_ms)
    except Unauthorized:
        return False
    return True


async def test_a_token_opens_what_it_was_made_for(settings: Settings) -> None:
    async with connect(settings) as backend:
        token = await made(
            backend, apps=("shop",), levels=("HIGH",), most_quota="5", most_per_s=100
        )

        found = await access.check(backend.documents, token.token, now_ms())

    assert found.access == Access(
        Role.SUBMITTER, frozenset({"shop"}), frozenset({"high"}), frozenset(), 5, 100.0
    )
    assert (found.name, found.created_by) == ("shop", "ada")


async def test_its_secret_is_shown_once_and_kept_by_nobody(settings: Settings) -> None:
    async with connect(settings) as backend:
        token = await made(backend)
        [_, _, secret] = token.token.split("_", 2)

        [kept] = await backend.documents.list("access")
        listed = await do(backend, settings, ADMIN, ListTokens())
        audit = await do(backend, settings, ADMIN, ListAudit())

    assert len(secret) == 43
    assert secret.encode() not in kept.body
    assert secret not in repr((listed, audit))
    assert [one.id for one in listed] == [token.id]


@pytest.mark.parametrize(
    "text",
    ["", "pl", "pl_0123456789_short", "bearer", "pl_0123456789_" + "a" * 43, "pl_%_" + "é" * 43],
)
async def test_what_is_no_token_opens_nothing(settings: Settings, text: str) -> None:
    async with connect(settings) as backend:
        await made(backend)

        assert not await opens(backend, text)


async def test_another_secret_of_a_token_opens_nothing(settings: Settings) -> None:
    async with connect(settings) as backend:
        one, other = await made(backend), await made(backend)
        [_, _, secret] = other.token.split("_", 2)
        assert not await opens(backend, f"pl_{one.id}_{secret}")
        assert await opens(backend, one.token)


async def test_it_ends_when_it_was_told_to(settings: Settings) -> None:
    async with connect(settings) as backend:
        token = await made(backend, lasts_s="2h")

        assert await opens(backend, token.token, 7_100_000)
        assert not await opens(backend, token.token, 7_300_000)


async def test_of_a_rotated_one_both_open_for_a_while(settings: Settings) -> None:
    async with connect(settings) as backend:
        first = await made(backend)
        second = await do(backend, settings, ADMIN, RotateToken.made(token=first.id, keep_s="1h"))
        third = await do(backend, settings, ADMIN, RotateToken.made(token=first.id, keep_s=0))

        assert first.id == second.id == third.id
        assert not await opens(backend, first.token)
        assert not await opens(backend, second.token)
        assert await opens(backend, third.token)


async def test_the_text_before_a_rotation_is_valid_until_then(settings: Settings) -> None:
    async with connect(settings) as backend:
        first = await made(backend)
        second = await do(backend, settings, ADMIN, RotateToken.made(token=first.id, keep_s="1h"))

        assert await opens(backend, first.token, 3_500_000)
        assert not await opens(backend, first.token, 3_700_000)
        assert await opens(backend, second.token, 3_700_000)


async def test_a_revoked_one_opens_nothing(settings: Settings) -> None:
    async with connect(settings) as backend:
        token = await made(backend)

        await do(backend, settings, ADMIN, RevokeToken(token=token.id))

        assert not await opens(backend, token.token)
        with pytest.raises(
            NotFound, match=f"there is no token '{token.id}'; `pushlane access list"
        ):
            await do(backend, settings, ADMIN, RevokeToken(token=token.id))


async def test_its_use_is_noted_every_ten_minutes_at_most(settings: Settings) -> None:
    async with connect(settings) as backend:
        token = await made(backend)
        for at_ms in (1_000_000, 1_500_000, 1_700_000):
            found = await access.check(backend.documents, token.token, at_ms)
            await access.note_use(backend.documents, found, at_ms)

        [shown] = await do(backend, settings, ADMIN, ListTokens())

    assert shown.used_at_ms == 1_700_000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": " "}, "give the token a name, so that people know its owner"),
        ({"grants": "boss"}, "unknown grants 'boss'; use viewer, submitter, operator, admin"),
        ({"grants": "operator", "levels": ("low",)}, "this token has the role operator: leave"),
        ({"lasts_s": "soon"}, "lasts_s 'soon' is not a duration"),
        ({"most_quota": 0}, "most_quota 0 is below 1"),
    ],
)
async def test_what_cannot_be_is_refused(settings: Settings, given: Any, told: str) -> None:
    async with connect(settings) as backend:
        with pytest.raises(BadInput) as caught:
            await made(backend, **given)

        assert told in str(caught.value)
        assert await do(backend, settings, ADMIN, ListTokens()) == []


ISSUED = {
    "oidc_issuer": "https://id.example.com",
    "oidc_audience": "pushlane",
    "oidc_roles": "ops=operator, devs=viewer",
    "oidc_role_claim": "realm.roles",
}


async def test_whose_tokens_are_taken_beside_ours_is_shown(settings: Settings) -> None:
    more = {"oidc_apps_claim": "apps", "oidc_requests_per_s": 2.0, "oidc_client_id": "console"}
    async with connect(settings) as backend:
        none = await do(backend, settings, ADMIN, GetIssuer())
        some = await do(backend, settings.but(**ISSUED), ADMIN, GetIssuer())
        whole = await do(backend, settings.but(**ISSUED, **more), ADMIN, GetIssuer())

    assert plain(none) == {}
    assert plain(some) == {
        "issuer": "https://id.example.com",
        "audience": "pushlane",
        "roles": {"ops": "operator", "devs": "viewer"},
        "role_claim": "realm.roles",
    }
    assert (whole.apps_claim, whole.requests_per_s, whole.client_id) == ("apps", 2.0, "console")


async def test_in_an_incident_nothing_is_changed_until_it_is_over(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, SetMode(read_only=True, reason="broker is moved"))

        told = "changes are forbidden now: ada set the read-only mode: broker is moved; to allow"
        with pytest.raises(NotNow, match=told):
            await do(backend, settings, Caller("bob", "python"), SetLevels(weights="1:1:1"))
        assert str(await backend.registry.weights()) == "6:3:1"
        assert (await do(backend, settings, ADMIN, GetMode())).read_only

        await do(backend, settings, ADMIN, SetMode(read_only=False))
        await do(backend, settings, ADMIN, SetLevels(weights="1:1:1"))
        audit = await do(backend, settings, ADMIN, ListAudit())

    assert [one.operation for one in audit] == ["set-levels", "set-mode", "set-mode"]
