"""The admin client and the set-up of namespaces, against a small HTTP server of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr

from lanes.errors import BadInput, PushlaneError, UnknownLane, Unreachable
from lanes.pulsar.admin import Admin, topic_path
from lanes.pulsar.policies import LANE_POLICIES, Policy, ensure_namespace

TOKEN = "secret-token"


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Response(NamedTuple):
    status: int
    value: Any = None
    location: str = ""


class Server:
    """Answers from a table of (method, path); 404 for the rest."""

    def __init__(self, table: dict[tuple[str, str], Response]) -> None:
        self.table = table
        self.requests: list[Request] = []
        self.url = ""

    def changes(self) -> list[tuple[str, str]]:
        return [(r.method, r.path) for r in self.requests if r.method != "GET"]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(content) if content else None
        self.requests.append(Request(method, path, headers, body))
        response = self.table.get((method, path), Response(404, {"reason": "not found"}))
        writer.write(_rendered(response))
        writer.close()


def _rendered(response: Response) -> bytes:
    body = json.dumps(response.value).encode() if response.value is not None else b""
    location = f"Location: {response.location}\r\n" if response.location else ""
    head = f"HTTP/1.1 {response.status} X\r\n{location}Content-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


@asynccontextmanager
async def serving(table: dict[tuple[str, str], Response]) -> AsyncIterator[Server]:
    server = Server(table)
    listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield server


@asynccontextmanager
async def playing(
    table: dict[tuple[str, str], Response],
) -> AsyncIterator[tuple[Admin, Server]]:
    async with serving(table) as server, Admin(server.url, SecretStr(TOKEN)) as admin:
        yield admin, server


async def test_a_reply_carries_status_and_value_and_the_token_was_sent() -> None:
    async with playing({("GET", "/admin/v2/clusters"): Response(200, ["one"])}) as (admin, server):
        reply = await admin.call("GET", "/clusters", "list clusters")

        assert reply == (200, ["one"])
        assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


async def test_a_redirect_is_followed_with_method_body_and_token() -> None:
    table = {
        ("PUT", "/admin/v2/here"): Response(307, location="/there"),
        ("PUT", "/there"): Response(204),
    }
    async with playing(table) as (admin, server):
        reply = await admin.call("PUT", "/here", "make it", {"a": 1})

        assert reply.status == 204
        assert [(r.method, r.path, r.body) for r in server.requests] == [
            ("PUT", "/admin/v2/here", {"a": 1}),
            ("PUT", "/there", {"a": 1}),
        ]
        assert server.requests[1].headers["authorization"] == f"Bearer {TOKEN}"


async def test_a_redirect_without_end_is_given_up() -> None:
    async with playing({("GET", "/admin/v2/loop"): Response(307, location="/admin/v2/loop")}) as (
        admin,
        _,
    ):
        with pytest.raises(Unreachable, match="status 307"):
            await admin.call("GET", "/loop", "go round")


async def test_an_allowed_status_is_returned_and_another_raised_with_its_reason() -> None:
    async with playing({}) as (admin, _):
        assert (await admin.call("GET", "/none", "look", allow=(404,))).status == 404
        with pytest.raises(UnknownLane, match="status 404, not found"):
            await admin.call("GET", "/none", "look")


async def test_no_error_shows_the_token() -> None:
    async with playing({("GET", "/admin/v2/denied"): Response(403, {"reason": "no"})}) as (
        admin,
        _,
    ):
        with pytest.raises(Unreachable) as caught:
            await admin.call("GET", "/denied", "look")
        assert TOKEN not in repr(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"), [("http://127.0.0.1:1", Unreachable), ("nonsense", BadInput)]
)
async def test_a_url_that_does_not_work_is_named(url: str, expected: type[Exception]) -> None:
    async with Admin(url, None) as admin:
        with pytest.raises(expected, match=url):
            await admin.call("GET", "/clusters", "list clusters")


def test_a_topic_name_is_quoted_in_its_path() -> None:
    assert topic_path("t/ns", "a/b c") == "/persistent/t/ns/a%2Fb%20c"


def _stored(policies: tuple[Policy, ...]) -> dict[str, Any]:
    stored = {policy.key: policy.value for policy in policies}
    quota = {"destination_storage": {**stored["backlog_quota_map"], "limit": 1}}
    return {**stored, "backlog_quota_map": quota, "deleted": False}


async def test_a_namespace_that_is_as_it_should_be_is_only_read() -> None:
    async with playing(
        {("GET", "/admin/v2/namespaces/t/ns"): Response(200, _stored(LANE_POLICIES))}
    ) as (admin, server):
        await ensure_namespace(admin, "t/ns", LANE_POLICIES)

        assert [(r.method, r.path) for r in server.requests] == [
            ("GET", "/admin/v2/namespaces/t/ns")
        ]


async def test_only_the_policies_that_differ_are_set() -> None:
    table = {
        ("GET", "/admin/v2/namespaces/t/ns"): Response(
            200, {**_stored(LANE_POLICIES), "deduplicationEnabled": False}
        ),
        ("POST", "/admin/v2/namespaces/t/ns/deduplication"): Response(204),
    }
    async with playing(table) as (admin, server):
        await ensure_namespace(admin, "t/ns", LANE_POLICIES)

        assert server.changes() == [("POST", "/admin/v2/namespaces/t/ns/deduplication")]
        assert server.requests[-1].body is True


async def test_a_missing_tenant_and_namespace_are_made_and_a_race_for_them_is_no_error() -> None:
    table = {
        ("GET", "/admin/v2/clusters"): Response(200, ["one"]),
        ("PUT", "/admin/v2/tenants/t"): Response(409),
        ("PUT", "/admin/v2/namespaces/t/ns"): Response(409),
    }
    async with playing(table) as (admin, server):
        await ensure_namespace(admin, "t/ns", ())

        assert server.changes() == [
            ("PUT", "/admin/v2/tenants/t"),
            ("PUT", "/admin/v2/namespaces/t/ns"),
        ]


@pytest.mark.parametrize("namespace", ["lanes", "a/b/c", "/lanes", "a/b?c=d", ""])
async def test_a_namespace_that_is_none_is_refused_before_anything_is_asked(namespace: str) -> None:
    async with playing({}) as (admin, server):
        with pytest.raises(BadInput, match="tenant/name"):
            await ensure_namespace(admin, namespace, LANE_POLICIES)
        assert server.requests == []


@pytest.mark.parametrize("url", ["ftp://me:hush-hush@host", "http://me:hush-hush@127.0.0.1:1"])
async def test_a_password_in_the_url_is_in_no_message(url: str) -> None:
    with pytest.raises(PushlaneError) as refused:
        async with Admin(url, None) as admin:
            await admin.call("GET", "/clusters", "list clusters")

    assert "hush-hush" not in str(refused.value)
