"""What every document store promises (see `model.documents.DocumentStore`)."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.core.errors import BadInput
from pushlane.model.documents import LONGEST_NAME, MOST_BYTES


async def test_what_is_put_is_there_for_every_process(connections):
    async with connections:
        here, there = await connections.two()

        version = await here.documents.put("rule", "weekly", b"text", None)

        found = await there.documents.get("rule", "weekly")
        assert found == ("weekly", version, b"text")


async def test_what_was_never_put_is_not_there(connections):
    async with connections:
        documents = (await connections.one()).documents

        assert await documents.get("rule", "weekly") is None
        assert await documents.list("rule") == []


async def test_a_put_over_the_expected_version_replaces_it_with_another(connections):
    async with connections:
        documents = (await connections.one()).documents
        first = await documents.put("rule", "weekly", b"one", None)

        second = await documents.put("rule", "weekly", b"two", first)

        assert second != first
        assert await documents.get("rule", "weekly") == ("weekly", second, b"two")


async def test_a_put_over_another_version_changes_nothing(connections):
    async with connections:
        documents = (await connections.one()).documents
        first = await documents.put("rule", "weekly", b"one", None)
        second = await documents.put("rule", "weekly", b"two", first)

        assert await documents.put("rule", "weekly", b"late", first) is None
        assert await documents.put("rule", "weekly", b"new", None) is None
        assert await documents.put("rule", "daily", b"none to replace", second) is None

        assert [document.body for document in await documents.list("rule")] == [b"two"]


async def test_of_many_puts_over_one_version_one_is_kept(connections):
    async with connections:
        here, there = await connections.two()
        first = await here.documents.put("rule", "weekly", b"start", None)

        versions = await asyncio.gather(
            *(
                backend.documents.put("rule", "weekly", b"%d" % number, first)
                for number, backend in enumerate((here, there) * 5)
            )
        )

        [winner] = [number for number, version in enumerate(versions) if version is not None]
        found = await here.documents.get("rule", "weekly")
        assert found == ("weekly", versions[winner], b"%d" % winner)


async def test_each_kind_has_names_of_its_own(connections):
    async with connections:
        documents = (await connections.one()).documents
        await documents.put("rule", "b", b"1", None)
        await documents.put("rule", "a", b"2", None)
        await documents.put("rule-history", "a", b"3", None)

        listed = await documents.list("rule")

        assert [(document.name, document.body) for document in listed] == [("a", b"2"), ("b", b"1")]


async def test_a_version_is_not_given_again_after_a_removal(connections):
    async with connections:
        documents = (await connections.one()).documents
        first = await documents.put("rule", "weekly", b"one", None)

        assert await documents.remove("rule", "weekly")

        assert await documents.get("rule", "weekly") is None
        assert await documents.put("rule", "weekly", b"late", first) is None
        assert await documents.put("rule", "weekly", b"two", None) != first


async def test_removing_what_is_not_there_says_so(connections):
    async with connections:
        documents = (await connections.one()).documents

        assert not await documents.remove("rule", "weekly")


async def test_only_the_expected_version_is_removed(connections):
    async with connections:
        documents = (await connections.one()).documents
        first = await documents.put("rule", "weekly", b"one", None)
        second = await documents.put("rule", "weekly", b"two", first)

        assert not await documents.remove("rule", "weekly", first)
        assert await documents.get("rule", "weekly") == ("weekly", second, b"two")

        assert await documents.remove("rule", "weekly", second)
        assert not await documents.remove("rule", "weekly", second)
        assert await documents.list("rule") == []


async def test_any_bytes_and_the_largest_body_are_kept_as_they_are(connections):
    async with connections:
        documents = (await connections.one()).documents
        body = (bytes(range(256)) + b"\n" * 256) * (MOST_BYTES // 512)
        name = "ü: " + "x" * (LONGEST_NAME - 3)

        await documents.put("rule", name, body, None)

        [found] = await documents.list("rule")
        assert (found.name, found.body) == (name, body)


@pytest.mark.parametrize(
    ("kind", "name", "body"),
    [
        ("rule", "weekly", b"x" * (MOST_BYTES + 1)),
        ("rule", "weekly", b""),
        ("rule", "", b"x"),
        ("rule", "x" * (LONGEST_NAME + 1), b"x"),
        ("rule", "two\nlines", b"x"),
        ("No kind", "weekly", b"x"),
    ],
)
async def test_what_is_out_of_bounds_is_refused(connections, kind, name, body):
    async with connections:
        documents = (await connections.one()).documents

        with pytest.raises(BadInput):
            await documents.put(kind, name, body, None)

        assert await documents.list("rule") == []
