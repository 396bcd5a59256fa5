"""Operations on recipients: how many at once, and what the audit has of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from pushlane import BadInput, Settings
from pushlane.backends.backend import connect
from pushlane.core.task import now_ms
from pushlane.model.access import Access, Role
from pushlane.model.recipients import AddressDeath, kept_hasher
from pushlane.operations.doing import do
from pushlane.operations.operation import Operation
from pushlane.operations.processes import ListAudit
from pushlane.operations.recipients import (
    MOST_VALUES,
    ChangedValues,
    CheckSuppressed,
    ClearSuppressions,
    CountSuppressions,
    ListDeadAddresses,
    RegisterAddresses,
    Suppress,
    SuppressedCount,
    SuppressedIn,
    Unsuppress,
)
from pushlane.operations.session import Caller
from pushlane.operations.views import plain
from pushlane.util.errors import NotAllowed

ADMIN = Caller("ada", "cli")


async def test_values_are_suppressed_found_and_let_go(settings: Settings) -> None:
    async with connect(settings) as backend:
        added = await do(backend, settings, ADMIN, Suppress(values=("a", "b", " ", "a"), app="s"))
        again = await do(backend, settings, ADMIN, Suppress(values=("b", "c"), app="s"))
        where = await do(backend, settings, ADMIN, CheckSuppressed(value="c"))
        removed = await do(backend, settings, ADMIN, Unsuppress(values=("c",), app="s"))
        counts = await do(backend, settings, ADMIN, CountSuppressions())

        assert (added.given, added.changed, added.left_out) == (2, 2, 1)
        assert (again.given, again.changed, again.left_out) == (2, 1, 0)
        assert where == [SuppressedIn("app", "s")]
        assert removed.changed == 1
        assert counts == [SuppressedCount("app", "s", 2)]


async def test_the_audit_has_counts_and_no_value(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, Suppress(values=("secret@example.org",), app="s"))
        await do(backend, settings, ADMIN, ClearSuppressions(app="s"))
        wanted = RegisterAddresses(sink="fcm", values=("secret-token",))
        await do(backend, settings, ADMIN, wanted)
        cleared, added = await do(backend, settings, ADMIN, ListAudit())
        kept = [one.body for one in await backend.documents.list("audit")]

    assert (added.subject, added.after) == ("app/s", {"suppressed": 1})
    assert (cleared.before, cleared.after) == ({"suppressed": 1}, {"suppressed": 0})
    assert not any(b"secret" in body for body in kept)


async def test_the_audit_has_what_is_registered_anew_and_nothing_that_changed_nothing(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, Suppress(values=("secret-token",), sink="fcm"))
        wanted = RegisterAddresses(sink="fcm", values=("secret-token", "another"))
        for _ in range(2):
            await do(backend, settings, ADMIN, wanted)
        await do(backend, settings, ADMIN, ClearSuppressions(sink="fcm"))
        registered, _ = await do(backend, settings, ADMIN, ListAudit())
        kept = [one.body for one in await backend.documents.list("audit")]

    assert (registered.operation, registered.subject) == ("register-addresses", "sink/fcm")
    assert registered.after == {"registered anew": 1}
    assert not any(b"secret" in body for body in kept)


async def test_the_values_of_a_list_are_one_entry_however_many_requests_they_take(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        first = await do(backend, settings, ADMIN, Suppress(values=("a", "b"), app="s"))
        entry = first.entry or ""
        for values in (("a", "b"), ("c",)):  # the first of which changes nothing
            more = await do(
                backend, settings, ADMIN, Suppress(values=values, app="s", counts_into=entry)
            )
            assert more.entry == entry
        [kept] = await do(backend, settings, ADMIN, ListAudit())

    assert kept.after == {"suppressed": 3}


@pytest.mark.parametrize(
    ("caller", "wanted"),
    [
        (Caller("bob", "cli"), Suppress(values=("c",), app="s")),
        (ADMIN, Suppress(values=("c",), app="other")),
        (ADMIN, Unsuppress(values=("a",), app="s")),
    ],
    ids=["of another", "of another app", "of another operation"],
)
async def test_what_is_not_alike_is_an_entry_of_its_own(
    settings: Settings, caller: Caller, wanted: Suppress | Unsuppress
) -> None:
    async with connect(settings) as backend:
        first = await do(backend, settings, ADMIN, Suppress(values=("a", "b"), app="s"))
        assert first.entry is not None
        await do(backend, settings, caller, replace(wanted, counts_into=first.entry))
        newest, oldest = await do(backend, settings, ADMIN, ListAudit())

    assert oldest.after == {"suppressed": 2}
    assert [*newest.after.values()] == [1]


async def test_an_entry_that_is_kept_no_longer_is_followed_by_another(settings: Settings) -> None:
    gone = "0" * 20 + "-" + "a" * 12
    async with connect(settings) as backend:
        wanted = Suppress(values=("a",), app="s", counts_into=gone)
        await do(backend, settings, ADMIN, wanted)
        [kept] = await do(backend, settings, ADMIN, ListAudit())

    assert kept.after == {"suppressed": 1}


@pytest.mark.parametrize("newest_first", [False, True])
async def test_dead_addresses_go_on_where_a_page_ends_and_show_no_address(
    settings: Settings, newest_first: bool
) -> None:
    tokens = [f"secret-{number}" for number in range(1_100)]
    query = ListDeadAddresses(newest_first=newest_first)
    async with connect(settings) as backend:
        hashes = (await kept_hasher(backend.documents)).hashes(tokens)
        deaths = [AddressDeath(one, now_ms(), "UNREGISTERED", "s", "") for one in hashes]
        await backend.dead_addresses.record("fcm", deaths, now_ms())
        pages = [await do(backend, settings, ADMIN, query)]
        while after := pages[-1].after:
            pages.append(await do(backend, settings, ADMIN, replace(query, after=after)))

    found = [one for page in pages for one in page.addresses]
    assert len(pages) > 1
    assert len({one.fingerprint for one in found}) == len(found) == len(tokens)
    assert "secret" not in str(plain(pages))


@pytest.mark.parametrize("kind", [Suppress, Unsuppress, partial(RegisterAddresses, sink="fcm")])
async def test_too_many_at_once_are_refused_with_how_many_may_be(
    settings: Settings, kind: Callable[..., Operation[ChangedValues]]
) -> None:
    values = tuple(map(str, range(MOST_VALUES + 1)))
    async with connect(settings) as backend:
        with pytest.raises(BadInput, match="10,001 values are too many at once; send 10,000"):
            await do(backend, settings, ADMIN, kind(values=values))

        assert await do(backend, settings, ADMIN, CountSuppressions()) == []


@pytest.mark.parametrize("scope", [{}, {"sink": "fcm"}])
async def test_who_sees_some_apps_suppresses_in_those_alone(
    settings: Settings, scope: dict[str, str]
) -> None:
    caller = Caller("bob", "http", Access(Role.OPERATOR, frozenset({"s"})))
    async with connect(settings) as backend:
        with pytest.raises(NotAllowed, match="concerns all apps: name your app"):
            await do(backend, settings, caller, Suppress(values=("a",), **scope))
        await do(backend, settings, caller, Suppress(values=("a",), app="s"))
        await do(backend, settings, ADMIN, Suppress(values=("a",)))

        assert await do(backend, settings, caller, CheckSuppressed(value="a")) == [
            SuppressedIn("app", "s")
        ]
