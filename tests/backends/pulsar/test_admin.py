"""The admin client and the set-up of namespaces, against a small HTTP server of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pushlane.backends.pulsar.admin import Admin, connect_admin, make_subscription, topic_path
from pushlane.backends.pulsar.broker import PulsarBroker
from pushlane.backends.pulsar.connection import Connection
from pushlane.backends.pulsar.credentials import Credentials, TokenCredentials
from pushlane.backends.pulsar.policies import Policy, ensure_namespace, lane_policies
from pushlane.core.errors import BadInput, PushlaneError, UnknownLane, Unreachable
from pushlane.settings import Settings
from pushlane.util.tls import TlsFiles
from tests.certificates import Authority
from tests.tls_proxy import tls_in_front_of

TOKEN = "secret-token"
HOLDER = TokenCredentials("pulsar_token", lambda: TOKEN)


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Response(NamedTuple):
    status: int
    value: Any = None
    location: str = ""
    raw: bytes = b""
    missing_bytes: int = 0  # so many of those that are announced never come


Table = dict[tuple[str, str], Response | list[Response]]


class Server:
    """Answers from a table of (method, path); 404 for the rest. Of a list each is given once, and
    the last one for ever.
    """

    def __init__(self, table: Table) -> None:
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
        writer.write(_rendered(self._next(method, path)))
        writer.close()

    def _next(self, method: str, path: str) -> Response:
        found = self.table.get((method, path), Response(404, {"reason": "Topic not found"}))
        if isinstance(found, Response):
            return found
        return found.pop(0) if len(found) > 1 else found[0]


def _rendered(response: Response) -> bytes:
    body = json.dumps(response.value).encode() if response.value is not None else response.raw
    location = f"Location: {response.location}\r\n" if response.location else ""
    length = len(body) + response.missing_bytes
    head = f"HTTP/1.1 {response.status} X\r\n{location}Content-Length: {length}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


@asynccontextmanager
async def serving(table: Table) -> AsyncIterator[Server]:
    server = Server(table)
    listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield server


def play(table: Table, scenario: Callable[[Admin, Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving(table) as server, Admin(server.url, HOLDER) as admin:
            await scenario(admin, server)

    asyncio.run(run())


def test_a_reply_carries_status_and_value_and_the_token_was_sent() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        reply = await admin.call("GET", "/clusters", "list clusters")

        assert reply == (200, ["one"])
        assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"

    play({("GET", "/admin/v2/clusters"): Response(200, ["one"])}, scenario)


def test_a_redirect_is_followed_with_method_body_and_token() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        reply = await admin.call("PUT", "/here", "make it", {"a": 1})

        assert reply.status == 204
        assert [(r.method, r.path, r.body) for r in server.requests] == [
            ("PUT", "/admin/v2/here", {"a": 1}),
            ("PUT", "/there", {"a": 1}),
        ]
        assert server.requests[1].headers["authorization"] == f"Bearer {TOKEN}"

    table: Table = {
        ("PUT", "/admin/v2/here"): Response(307, location="/there"),
        ("PUT", "/there"): Response(204),
    }
    play(table, scenario)


async def test_of_several_hosts_the_next_is_asked_while_one_is_down() -> None:
    table: Table = {("GET", "/admin/v2/clusters"): Response(200, ["one"])}
    async with serving(table) as up:
        async with serving({}) as server:
            down = server.url
        hosts = f"{down},{up.url.removeprefix('http://')}"
        async with Admin(hosts, HOLDER) as admin:
            replies = [await admin.call("GET", "/clusters", "list clusters") for _ in range(2)]

    assert replies == [(200, ["one"])] * 2
    assert len(up.requests) == 2


async def test_of_several_hosts_one_that_answers_is_asked_alone() -> None:
    async with serving({}) as one, serving({}) as other:
        async with Admin(f"{one.url},{other.url}", None) as admin:
            with pytest.raises(UnknownLane):
                await admin.call("GET", "/clusters", "list clusters")

        assert (len(one.requests), len(other.requests)) == (1, 0)


async def test_when_all_of_several_hosts_are_down_the_error_names_them() -> None:
    async with serving({}) as one, serving({}) as other:
        hosts = f"{one.url},{other.url}"
    async with Admin(hosts, None) as admin:
        with pytest.raises(Unreachable, match=f"{hosts} did not answer"):
            await admin.call("GET", "/clusters", "list clusters")


async def test_of_several_hosts_one_that_is_no_url_is_told() -> None:
    async with serving({}) as down:
        hosts = f"{down.url},nobody home"
    async with Admin(hosts, None) as admin:
        with pytest.raises(BadInput, match="cannot be used"):
            await admin.call("GET", "/clusters", "list clusters")


def test_a_redirect_without_end_is_given_up() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        with pytest.raises(Unreachable, match="status 307"):
            await admin.call("GET", "/loop", "go round")

    play({("GET", "/admin/v2/loop"): Response(307, location="/admin/v2/loop")}, scenario)


def test_an_allowed_status_is_returned_and_another_raised_with_its_reason() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        assert (await admin.call("GET", "/none", "look", allow=(404,))).status == 404
        with pytest.raises(UnknownLane, match="status 404, Topic not found"):
            await admin.call("GET", "/none", "look")

    play({}, scenario)


def test_no_error_shows_the_token() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        with pytest.raises(Unreachable) as caught:
            await admin.call("GET", "/denied", "look")
        assert TOKEN not in repr(caught.value)

    play({("GET", "/admin/v2/denied"): Response(403, {"reason": "no"})}, scenario)


@pytest.mark.parametrize(
    ("url", "expected"), [("http://127.0.0.1:1", Unreachable), ("nonsense", BadInput)]
)
def test_a_url_that_does_not_work_is_named(url: str, expected: type[Exception]) -> None:
    async def scenario() -> None:
        async with Admin(url, None) as admin:
            with pytest.raises(expected, match=url):
                await admin.call("GET", "/clusters", "list clusters")

    asyncio.run(scenario())


OWN = Settings(retention_s=0.0)
POLICIES_OF_LANES = lane_policies(OWN)


def test_a_topic_name_is_quoted_in_its_path() -> None:
    assert topic_path("t/ns", "a/b c") == "/persistent/t/ns/a%2Fb%20c"


def _stored(policies: tuple[Policy, ...]) -> dict[str, Any]:
    stored = {policy.key: policy.value for policy in policies}
    quota = {"destination_storage": {**stored["backlog_quota_map"], "limit": 1}}
    return {**stored, "backlog_quota_map": quota, "deleted": False}


def test_a_namespace_that_is_as_it_should_be_is_only_read() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", POLICIES_OF_LANES)

        assert [(r.method, r.path) for r in server.requests] == [
            ("GET", "/admin/v2/namespaces/t/ns")
        ]

    play(
        {("GET", "/admin/v2/namespaces/t/ns"): Response(200, _stored(POLICIES_OF_LANES))}, scenario
    )


def test_an_operators_own_quota_is_set_back_unless_it_is_to_be_kept() -> None:
    own = {"limitSize": 5, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    stored = {**_stored(POLICIES_OF_LANES), "backlog_quota_map": {"destination_storage": own}}
    table: Table = {
        ("GET", "/admin/v2/namespaces/t/ns"): Response(200, stored),
        ("POST", "/admin/v2/namespaces/t/ns/backlogQuota"): Response(204),
    }

    async def set_back(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", lane_policies(OWN.but(lane_quota_bytes=2**30)))

        assert server.changes() == [("POST", "/admin/v2/namespaces/t/ns/backlogQuota")]
        assert server.requests[-1].body == {
            "limitSize": 2**30,
            "limitTime": -1,
            "policy": "producer_exception",
        }

    async def kept(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", lane_policies(OWN.but(lane_quota_bytes="keep")))

        assert server.changes() == []

    play(table, set_back)
    play(table, kept)


def test_only_the_policies_that_differ_are_set() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", POLICIES_OF_LANES)

        assert server.changes() == [("POST", "/admin/v2/namespaces/t/ns/deduplication")]
        assert server.requests[-1].body is True

    table: Table = {
        ("GET", "/admin/v2/namespaces/t/ns"): Response(
            200, {**_stored(POLICIES_OF_LANES), "deduplicationEnabled": False}
        ),
        ("POST", "/admin/v2/namespaces/t/ns/deduplication"): Response(204),
    }
    play(table, scenario)


def test_a_missing_tenant_and_namespace_are_made_and_a_race_for_them_is_no_error() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", ())

        assert server.changes() == [
            ("PUT", "/admin/v2/tenants/t"),
            ("PUT", "/admin/v2/namespaces/t/ns"),
        ]

    table: Table = {
        ("GET", "/admin/v2/clusters"): Response(200, ["one"]),
        ("PUT", "/admin/v2/tenants/t"): Response(409),
        ("PUT", "/admin/v2/namespaces/t/ns"): Response(409),
    }
    play(table, scenario)


NOT_HEARD_OF = Response(404, {"reason": "Namespace does not exist"})


def test_a_namespace_that_the_broker_has_not_heard_of_yet_is_asked_for_again() -> None:
    """Another process has just made it, and the answering broker's view of the metadata lags."""

    async def scenario(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", POLICIES_OF_LANES[-1:])

        assert server.changes() == [
            ("PUT", "/admin/v2/tenants/t"),
            *2 * [("PUT", "/admin/v2/namespaces/t/ns")],
            *3 * [("POST", "/admin/v2/namespaces/t/ns/backlogQuota")],
        ]

    table: Table = {
        ("GET", "/admin/v2/clusters"): Response(200, ["one"]),
        ("PUT", "/admin/v2/tenants/t"): Response(409),
        ("PUT", "/admin/v2/namespaces/t/ns"): [
            Response(404, {"reason": "Tenant does not exist"}),
            Response(409),
        ],
        ("POST", "/admin/v2/namespaces/t/ns/backlogQuota"): [
            NOT_HEARD_OF,
            Response(409, {"reason": "Concurrent modification"}),
            Response(204),
        ],
    }
    play(table, scenario)


def test_a_tenant_that_two_make_at_once_is_asked_for_again() -> None:
    """The one who comes second may read 500 with the metadata store's own error."""

    async def scenario(admin: Admin, server: Server) -> None:
        await ensure_namespace(admin, "t/ns", ())

        assert server.changes() == [
            *2 * [("PUT", "/admin/v2/tenants/t")],
            ("PUT", "/admin/v2/namespaces/t/ns"),
        ]

    table: Table = {
        ("GET", "/admin/v2/clusters"): Response(200, ["one"]),
        ("PUT", "/admin/v2/tenants/t"): [
            Response(500, {"reason": "AlreadyExistsException: Version mismatch"}),
            Response(409),
        ],
        ("PUT", "/admin/v2/namespaces/t/ns"): Response(204),
    }
    play(table, scenario)


def test_what_a_broker_never_hears_of_is_given_up_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pushlane.backends.pulsar.admin.HEARD_OF_WITHIN_S", 0.0)

    async def scenario(admin: Admin, server: Server) -> None:
        with pytest.raises(PushlaneError, match=r"set deduplication .*Namespace does not exist"):
            await ensure_namespace(admin, "t/ns", POLICIES_OF_LANES)

    stored = {**_stored(POLICIES_OF_LANES), "deduplicationEnabled": False}
    table: Table = {
        ("GET", "/admin/v2/namespaces/t/ns"): Response(200, stored),
        ("POST", "/admin/v2/namespaces/t/ns/deduplication"): NOT_HEARD_OF,
    }
    play(table, scenario)


def test_a_subscription_of_a_topic_that_was_just_made_is_asked_for_again() -> None:
    """The topic is not heard of yet, then another process makes the same subscription."""

    async def scenario(admin: Admin, server: Server) -> None:
        await make_subscription(admin, "/persistent/t/ns/a", "pushlane", "open lane a")

        assert server.changes() == 3 * [("PUT", f"/admin/v2{SUBSCRIPTION}")]

    table: Table = {
        ("PUT", f"/admin/v2{SUBSCRIPTION}"): [
            Response(404, {"reason": "Topic not found"}),
            Response(412, {"reason": "Can't find owner for topic persistent://t/ns/a"}),
            Response(409),
        ]
    }
    play(table, scenario)


SUBSCRIPTION = "/persistent/t/ns/a/subscription/pushlane"


def test_what_is_wrong_with_the_request_is_said_at_once() -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        with pytest.raises(BadInput, match="not valid"):
            await make_subscription(admin, "/persistent/t/ns/a", "pushlane", "open lane a")

        assert len(server.requests) == 1

    table: Table = {
        ("PUT", f"/admin/v2{SUBSCRIPTION}"): Response(412, {"reason": "Topic name is not valid"})
    }
    play(table, scenario)


@pytest.mark.parametrize("namespace", ["lanes", "a/b/c", "/lanes", "a/b?c=d", ""])
def test_a_namespace_that_is_none_is_refused_before_anything_is_asked(namespace: str) -> None:
    async def scenario(admin: Admin, server: Server) -> None:
        with pytest.raises(BadInput, match="tenant/name"):
            await ensure_namespace(admin, namespace, POLICIES_OF_LANES)
        assert server.requests == []

    play({}, scenario)


@pytest.mark.parametrize("url", ["ftp://me:hush-hush@host", "http://me:hush-hush@127.0.0.1:1"])
def test_a_password_in_the_url_is_in_no_message(url: str) -> None:
    async def ask() -> None:
        async with Admin(url, None) as admin:
            await admin.call("GET", "/clusters", "list clusters")

    with pytest.raises(PushlaneError) as refused:
        asyncio.run(ask())

    assert "hush-hush" not in str(refused.value)


LANES = ("GET", "/admin/v2/persistent/t/ns")
STATS = ("GET", "/admin/v2/persistent/t/ns/a/stats?getPreciseBacklog=true")


def play_broker(table: Table, scenario: Callable[[PulsarBroker], Awaitable[None]]) -> None:
    async def with_broker(admin: Admin, _: Server) -> None:
        await scenario(
            PulsarBroker(Connection(None, "pulsar://test"), admin, Settings(namespace="t/ns"))
        )

    play(table, with_broker)


@pytest.mark.parametrize(
    "answer",
    [
        Response(200),
        Response(200, {}),
        Response(200, [1]),
        Response(200, raw=b"<html>welcome</html>"),
        Response(200, raw=b'["persistent://t/ns/a", "persist'),
        Response(200, ["persistent://t/ns/a"], missing_bytes=5),
        Response(404, {"reason": "Namespace not found"}),
        Response(404, raw=b"<html>no such page</html>"),
        Response(412, {"reason": "Can't find owner of ServiceUnit: t/ns/0x00000000_0xffffffff"}),
    ],
)
def test_lanes_that_are_not_listed_whole_are_not_taken_for_none(answer: Response) -> None:
    async def scenario(broker: PulsarBroker) -> None:
        with pytest.raises(Unreachable):
            await broker.lanes()

    play_broker({LANES: answer}, scenario)


@pytest.mark.parametrize(
    "answer",
    [
        Response(200),
        Response(200, {}),
        Response(200, {"subscriptions": {"pushlane": {"consumers": []}}}),
        Response(200, {"subscriptions": {"pushlane": {"msgBacklog": 3}}}),
        Response(200, raw=b'{"subscriptions": {}'),
        Response(404, {"reason": "Namespace not found"}),
        Response(412, {"reason": "Can't find owner for topic persistent://t/ns/a"}),
    ],
)
def test_a_backlog_that_is_not_told_is_not_taken_for_empty(answer: Response) -> None:
    async def scenario(broker: PulsarBroker) -> None:
        with pytest.raises(Unreachable):
            await broker.backlog("a")

    play_broker({STATS: answer}, scenario)


def test_the_backlog_of_a_lane_that_is_not_there_is_none() -> None:
    async def scenario(broker: PulsarBroker) -> None:
        assert await broker.backlog("a") == 0

    play_broker({STATS: Response(404, {"reason": "Topic persistent://t/ns/a not found"})}, scenario)


@asynccontextmanager
async def two_servers(table: Table, far_table: Table) -> AsyncIterator[tuple[Server, Server]]:
    """The admin's own at 127.0.0.1, and another one at `localhost`, which is another host name."""
    async with serving(table) as near, serving(far_table) as far:
        far.url = far.url.replace("127.0.0.1", "localhost")
        near.table[("GET", "/admin/v2/x")] = Response(307, location=f"{far.url}/admin/v2/x")
        yield near, far


def ask_two(
    brokers: Response, credentials: Credentials | None, url: Callable[[str], str] = lambda url: url
) -> tuple[list[Request], Exception | None]:
    """What the other server was asked, and the error when the redirect was not followed."""

    async def run() -> tuple[list[Request], Exception | None]:
        table: Table = {("GET", "/admin/v2/brokers"): brokers}
        async with two_servers(table, {("GET", "/admin/v2/x"): Response(200, 1)}) as (near, far):
            refused = None
            async with Admin(near.url, credentials) as admin:
                near.table[("GET", "/admin/v2/x")] = Response(
                    307, location=url(f"{far.url}/admin/v2/x")
                )
                try:
                    assert (await admin.call("GET", "/x", "look")).value == 1
                except Unreachable as error:
                    refused = error
            return far.requests, refused

    return asyncio.run(run())


def test_the_token_goes_with_a_redirect_to_a_broker_that_is_listed() -> None:
    asked, _ = ask_two(Response(200, ["127.0.0.1:80", "localhost:8080"]), HOLDER)

    assert [request.headers["authorization"] for request in asked] == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize(
    "brokers", [Response(200, ["127.0.0.1:80"]), Response(403), Response(200, {}), Response(200)]
)
def test_a_redirect_to_a_host_that_is_no_broker_is_not_followed(brokers: Response) -> None:
    asked, refused = ask_two(brokers, HOLDER)

    assert asked == []
    assert "localhost, which is not one of its active brokers" in str(refused)


def test_a_redirect_is_followed_anywhere_when_there_is_no_token_to_lose() -> None:
    asked, _ = ask_two(Response(403), None)

    assert len(asked) == 1


@pytest.mark.parametrize("credentials", [HOLDER, None])
def test_a_redirect_to_another_scheme_is_not_followed(credentials: Credentials | None) -> None:
    """From http to https here; from https to http is the same rule."""
    listed = Response(200, ["localhost:8080"])
    asked, refused = ask_two(listed, credentials, lambda url: url.replace("http://", "https://"))

    assert asked == []
    assert "over the same scheme" in str(refused)


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_redirect_to_a_broker_with_a_certificate_of_our_authority_is_followed(
    tmp_path: Path, is_trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is no superuser may not ask for the list of brokers."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "another")
    monkeypatch.setenv("SSL_CERT_FILE", str(theirs.ca))  # this system trusts another one too
    signs = ours if is_trusted else theirs
    far_pair = signs.sign("far", ["localhost"])
    async with two_servers({}, {("GET", "/admin/v2/x"): Response(200, 1)}) as (near, far):
        with (
            tls_in_front_of(_port(near), ours.sign("near", ["127.0.0.1"])) as near_port,
            tls_in_front_of(_port(far), far_pair) as far_port,
        ):
            target = f"https://localhost:{far_port}/admin/v2/x"
            near.table[("GET", "/admin/v2/x")] = Response(307, location=target)
            files = TlsFiles("pulsar", ours.ca)
            async with Admin(f"https://127.0.0.1:{near_port}", HOLDER, files) as admin:
                with nullcontext() if is_trusted else pytest.raises(Unreachable):
                    await admin.call("GET", "/x", "look")

    assert len(far.requests) == is_trusted


def _port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_of_certificates_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(BadInput, match=r"pulsar_ca_file .*ca\.pem"):
        connect_admin(Settings(broker="pulsar+ssl://x:6651", pulsar_ca_file=file))


async def test_with_replaced_certificates_the_connections_of_before_are_closed(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\n1")
        ended.set()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Admin(url, None, TlsFiles("pulsar", authority.ca)) as admin:
            await admin.call("GET", "/x", "look")
            os.utime(authority.ca, ns=(0, 0))
            await admin.call("GET", "/x", "look")

            async with asyncio.timeout(5):
                await ended.wait()
