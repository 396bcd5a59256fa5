"""A client of a server does what a client of the backend does, with the same results and errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane import (
    BadInput,
    Client,
    InvalidChange,
    Level,
    Settings,
    State,
    SubmitRequest,
    UnknownTask,
)
from pushlane.backends.backend import connect
from pushlane.client import remote
from pushlane.client.lines import Lines
from pushlane.client.remote import Remote
from pushlane.core.errors import PushlaneError, TaskConflict, Unreachable
from pushlane.core.names import dead_lane
from pushlane.core.push import DeadPush, encode_dead
from pushlane.operations.dead import ListDead
from pushlane.operations.doing import do
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.shares import ListLimits
from pushlane.operations.tasks import ListTasks
from pushlane.operations.views import plain
from pushlane.producers import received
from pushlane.producers.producer import Producer
from pushlane.producers.replay import retained_pushes
from pushlane.settings import load
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.util.errors import LinesBusy, NeedsBackend, Unauthorized
from tests.operations.test_scopes import EXAMPLES
from tests.served import served

ROWS = [{"recipient": f"user-{n}", "name": f"N{n}", "group": str(n % 3)} for n in range(10)]
NEVER_THE_SAME = frozenset({"list-tokens", "list-audit"})
"""To ask is in them."""


class Away:
    """Settings of a client that is away from the store, and those of the store."""

    def __init__(self, here: Settings, url: str, token_file: Path) -> None:
        self.here = here
        self.settings = Settings(url=url, token_file=token_file)


@pytest.fixture
def away(settings: Settings, tmp_path: Path) -> Iterator[Away]:
    with served(settings, tmp_path / "token") as url:
        yield Away(settings, url, tmp_path / "token")


def request(**more: Any) -> SubmitRequest:
    return SubmitRequest(**{"source": ROWS, "level": "high", "title": "Hi {name}", **more})


async def on_lane(settings: Settings, task: str) -> list[tuple[int, str, str, int]]:
    """What lies on the task's lane, by seq."""
    async with connect(settings) as backend:
        found = retained_pushes(backend, await backend.registry.get(task))
        return sorted(
            [(push.seq, push.recipient, push.title, push.after_seq) async for push in found]
        )


def sent(first: int = 1, last: int = 10) -> list[tuple[int, str, str, int]]:
    return [(n, f"user-{n - 1}", f"Hi N{n - 1}", 0) for n in range(first, last + 1)]


async def test_it_submits_looks_and_changes(away: Away) -> None:
    async with Client(away.settings) as client:
        done = await client.submit(request(key="sale", expires_at_ms="2h"))
        again = await client.submit(request(key="sale", expires_at_ms="2h"))
        await client.set_quota("sale", 7)
        now = await client.task("sale")
        found = await on_lane(away.here, done.task_id)

        assert (done.published, done.task.total, done.resumed) == (10, 10, False)
        assert (again.already_done, again.task_id) == (True, done.task_id)
        assert (now.quota, now.total, now.percent, now.left) == (7, 10, 0.0, 10)
        assert found == sent()


async def test_errors_are_those_of_a_backend(away: Away) -> None:
    async with Client(away.settings) as client, Client(away.here) as beside:
        with pytest.raises(UnknownTask) as there:
            await client.task("nope")
        with pytest.raises(UnknownTask) as here:
            await beside.task("nope")
        await client.submit(request(key="sale"))
        await client.submit(request(key="over"))
        await client.cancel("over")
        with pytest.raises(InvalidChange):
            await client.resume("over")
        with pytest.raises(TaskConflict, match=r"key 'sale' is used by task .*, which differs in"):
            await client.submit(request(key="sale", level="low"))
        with pytest.raises(BadInput, match="quota"):
            await client.set_quota("sale", 0)

        assert str(there.value) == str(here.value)


async def test_each_look_is_as_it_is_beside_the_backend(away: Away) -> None:
    caller = Caller("root", "cli")
    async with Client(away.settings) as client, connect(away.here) as backend:
        await client.submit(request(key="ours", app="app-a"))
        for kind, make in EXAMPLES.items():
            if kind.method != "GET" or kind.word() in NEVER_THE_SAME:
                continue
            operation = make("app-a/ours", "app-a")
            here = await outcome(do(backend, away.here, caller, operation))
            there = await outcome(client.do(operation))

            assert type(there) is type(here), kind
            if isinstance(here, Exception):
                assert str(there) == str(here), kind


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 9])
async def test_a_list_is_whole_however_short_the_pages_of_the_server_are(
    away: Away, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("pushlane.door.requests.MOST_A_PAGE", 2)
    async with Client(away.settings) as client, Client(away.here) as beside:
        lane = dead_lane("t")
        for number in range(5):
            await client.submit(request(key=f"sale-{number}"))
            await client.set_limit(f"app/a{number}", total=5)
            dead = encode_dead(DeadPush("t", number + 1, 5, "HTTP 410", number, b""))
            await beside.backend.broker.open_lane(lane)
            await beside.backend.broker.publish(lane, [dead])
        for asked in (
            ListTasks(limit=limit),
            ListDead(limit=limit),
            ListAudit(limit=limit, find="app/"),
            ListLimits(limit=limit),
        ):
            there, here = await client.do(asked), await beside.do(asked)
            assert as_json(there) == as_json(here), asked


def as_json(view: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(plain(view)))


async def test_each_change_is_understood(away: Away) -> None:
    async with Client(away.settings) as client:
        await client.submit(request(key="ours", app="app-a"))
        for kind, make in EXAMPLES.items():
            if kind.method != "GET" and not kind.ends_read_only:
                found = await outcome(client.do(make("app-a/ours", "app-a")))

                assert type(found) is not PushlaneError, (kind, found)


async def outcome(work: Any) -> Any:
    try:
        return await work
    except PushlaneError as error:
        return error


def test_all_operations_have_an_example() -> None:
    assert EXAMPLES.keys() == set(OPERATIONS)


async def test_an_order_by_key_is_kept(away: Away) -> None:
    async with Client(away.settings) as client:
        done = await client.submit(request(ordered_by="group"))
        found = await on_lane(away.here, done.task_id)

        assert done.task.ordered
        assert [after for _, _, _, after in found] == [0, 0, 0, *range(1, 8)]


async def test_the_first_rows_then_the_rest(away: Away) -> None:
    async with Client(away.settings) as client:
        part = await client.submit(request(key="sale", first=4))
        some = await on_lane(away.here, part.task_id)
        done = await client.submit(request(key="sale"))
        found = await on_lane(away.here, part.task_id)

        assert (part.part, part.accepted, part.task.total) == (4, 10, None)
        assert (done.published, done.resumed, done.task.total) == (6, True, 10)
        assert (some, found) == (sent(1, 4), sent())


async def test_a_submit_that_is_paused_and_limited(away: Away) -> None:
    async with Client(away.settings) as client:
        done = await client.submit(request(paused=True, rate_per_s="5/s", in_flight=3))

        assert (done.task.state, done.task.reason) == (State.PAUSED, "submitted paused")
        assert done.limit is not None
        assert (done.limit.rate_per_s, done.limit.in_flight) == (5, 3)


async def test_a_request_whose_answer_is_lost_is_sent_again_and_each_push_once(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Remote.request
    lost: list[str] = []

    async def losing(self: Remote, method: str, path: str, *rest: Any) -> bytes:
        answer = await asked(self, method, path, *rest)
        if "/pushes?" in path and len(lost) < 2:
            lost.append(path)
            raise Unreachable("the answer is lost")
        return answer

    monkeypatch.setattr(Remote, "request", losing)
    monkeypatch.setattr("pushlane.producers.lines._MOST_BYTES", 200)
    async with Client(away.settings) as client:
        done = await client.submit(request())
        found = await on_lane(away.here, done.task_id)

        assert len(lost) == 2
        assert found == sent()


@pytest.mark.parametrize("is_let_go", [True, False])
async def test_another_submit_that_holds_the_lines_is_waited_for_as_long_as_a_lease(
    away: Away, monkeypatch: pytest.MonkeyPatch, is_let_go: bool
) -> None:
    look, asked = Lines.look, 0

    async def held(self: Lines) -> int:
        nonlocal asked
        asked += 1
        if asked < 3 or not is_let_go:
            raise LinesBusy("lines are being received elsewhere")
        return await look(self)

    monkeypatch.setattr(Lines, "look", held)
    monkeypatch.setattr("pushlane.operations.sending.WORK_TTL_S", 0.01)
    notes: list[str] = []
    async with Client(away.settings) as client:
        submitting = client.submit(
            request(key="sale"), on_progress=lambda progress: notes.append(progress.note)
        )
        if is_let_go:
            assert (await submitting).published == 10
        else:
            with pytest.raises(LinesBusy):
                await submitting

    assert sum("waiting for it to let go" in note for note in notes) == 1


async def test_a_sink_that_the_server_does_not_know_is_refused_before_anything_is_made(
    settings: Settings, tmp_path: Path
) -> None:
    named = settings.but(sinks={"apple": {"kind": "webhook", "url": "https://example.com"}})
    with served(named, tmp_path / "token") as url:
        here = Settings(url=url, token_file=tmp_path / "token")
        async with Client(here) as client:
            with pytest.raises(BadInput, match=r"no sink is named 'aple'.*did you mean 'apple'"):
                await client.submit(request(sink="aple"))

            assert await client.tasks() == []


async def test_a_row_that_is_over_a_limit_set_since_the_server_told_of_it_ends_the_task(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = PayloadLimits({"default": ("fcm", 400)})
    monkeypatch.setattr(received, "payload_limits", lambda settings, chain: limits)
    async with Client(away.settings) as client:
        rows = [*ROWS[:3], {"recipient": "user-3", "name": "N" * 500}]
        with pytest.raises(BadInput, match=r"line 4 is not a push.* is cancelled; 3 of its pushes"):
            await client.submit(request(source=rows))
        [task] = await client.tasks()

        assert task.state == State.CANCELLED


async def test_what_needs_the_backend_says_so(away: Away) -> None:
    async with Client(away.settings) as client:
        with pytest.raises(NeedsBackend, match="cannot be done through the server http://127"):
            _ = client.backend
    with pytest.raises(NeedsBackend):
        async with connect(away.settings):
            pass
    with (
        pytest.raises(NeedsBackend),
        Producer(Level.HIGH, settings=away.settings) as producer,
    ):
        await asyncio.to_thread(producer.push, "user-1", title="Hi")


def test_it_blocks_too(away: Away) -> None:
    with Client.sync(away.settings) as client:
        done = client.submit(request())

        assert client.task(done.task_id).total == 10


class Other(BaseHTTPRequestHandler):
    """Something that , and is not a pushlane server."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *args: Any) -> None:
        pass


async def test_what_is_no_server_of_ours_is_told(tmp_path: Path) -> None:
    other = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{other.server_port}"
    try:
        async with Client(Settings(url=url)) as client:
            with pytest.raises(Unreachable, match="with HTTP 200, and is not a pushlane server"):
                await client.weights()
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    async with Client(Settings(url=url)) as client:
        with pytest.raises(Unreachable, match=f"the server {url} does not answer"):
            await client.weights()


async def test_a_token_that_is_missing_or_wrong_is_told_with_its_file(
    away: Away, tmp_path: Path
) -> None:
    async with Client(Settings(url=away.settings.url)) as client:
        with pytest.raises(Unauthorized, match="asks for a token: set token_file"):
            await client.weights()
    (tmp_path / "wrong").write_text("pl_0000000000_" + "a" * 43)
    async with Client(away.settings.but(token_file=tmp_path / "wrong")) as client:
        with pytest.raises(Unauthorized, match=r"was revoked; .*wrong"):
            await client.weights()


class Unheard(Operation[int], frozen=True, kw_only=True):
    """Something that no server has yet."""

    method, path, role, of = "GET", "/unheard/of", Role.VIEWER, Of.EVERYTHING

    async def run(self, at: Any) -> int:
        raise AssertionError("no server has it")


async def test_an_older_server_is_told(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "VERSION", "99.0.0")
    async with Client(away.settings) as client:
        with pytest.raises(PushlaneError, match="does not know this operation: upgrade it"):
            await client.do(Unheard())


async def test_a_path_that_no_server_of_this_version_has_is_a_wrong_url(away: Away) -> None:
    async with Client(away.settings.but(url=f"{away.settings.url}/console")) as client:
        with pytest.raises(PushlaneError, match=r"/console, .*: check the setting url"):
            await client.weights()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"url": "push.example.com"}, "give the server's URL"),
        ({"url": "https://me:pw@push.example.com"}, "give the token in token_file"),
        ({"url": "http://push.example.com"}, "cross the network in the clear"),
        ({"url": "https://["}, "give the server's URL"),
        ({"token_file": "t"}, "it does nothing without url"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    own_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").write_text("x")

    with pytest.raises(BadInput, match=told):
        load(given)
