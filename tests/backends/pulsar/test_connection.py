"""Calls of the client that answer on other threads."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _pulsar
import pytest

from pushlane.backends.pulsar import connection as link_module
from pushlane.backends.pulsar.connection import Connection, open_connection, wake
from pushlane.backends.pulsar.replay import blocking
from pushlane.core.errors import BadInput, Unreachable
from pushlane.settings import Settings

URL = "pulsar://broker.test:6650"


def answer_from_a_thread(*answer: Any) -> Callable[[Callable[..., None]], None]:
    def start(done: Callable[..., None]) -> None:
        threading.Thread(target=done, args=answer).start()

    return start


def test_a_call_returns_what_the_client_answers() -> None:
    async def scenario() -> None:
        start = answer_from_a_thread(_pulsar.Result.Ok, "consumer")
        assert await Connection(None, URL).call("read lane x", start) == "consumer"

    asyncio.run(scenario())


def test_a_call_raises_what_the_code_means() -> None:
    async def scenario() -> None:
        start = answer_from_a_thread(_pulsar.Result.ConnectError, None)
        with pytest.raises(Unreachable, match="read lane x"):
            await Connection(None, URL).call("read lane x", start)

    asyncio.run(scenario())


def test_an_answer_to_a_cancelled_call_is_discarded() -> None:
    async def scenario() -> None:
        started: list[Callable[..., None]] = []
        discarded: list[Any] = []
        call = Connection(None, URL).call("read lane x", started.append, discard=discarded.append)
        task = asyncio.create_task(call)
        await asyncio.to_thread(int)
        task.cancel()
        await asyncio.wait([task])

        await asyncio.to_thread(started[0], _pulsar.Result.Ok, "consumer")

        assert discarded == ["consumer"]

    asyncio.run(scenario())


def test_an_answer_in_the_moment_of_the_cancellation_is_discarded() -> None:
    async def scenario() -> None:
        started: list[Callable[..., None]] = []
        discarded: list[Any] = []
        call = Connection(None, URL).call("read lane x", started.append, discard=discarded.append)
        task = asyncio.create_task(call)
        await asyncio.to_thread(int)
        started[0](_pulsar.Result.Ok, "consumer")
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.wait([task])

        assert task.cancelled()
        assert discarded == ["consumer"]

    asyncio.run(scenario())


class Opened:
    """A consumer, which can be closed."""

    def __init__(self) -> None:
        self.closed = False

    def close_async(self, answer: Callable[..., None]) -> None:
        self.closed = True
        answer(_pulsar.Result.Ok)


def test_what_hangs_is_opened_by_another_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_OPENED_AGAIN_AFTER_S", 0.0)

    async def scenario() -> None:
        begun: list[Callable[..., None]] = []
        first, second = Opened(), Opened()

        def start(done: Callable[..., None]) -> None:
            begun.append(done)
            if len(begun) == 2:
                done(_pulsar.Result.Ok, second)

        assert await Connection(None, URL).open("lane", "read lane x", start) is second
        await asyncio.to_thread(begun[0], _pulsar.Result.Ok, first)
        await asyncio.sleep(0)

        assert [first.closed, second.closed] == [True, False]

    asyncio.run(scenario())


class Silent:
    """A client whose look-ups nobody answers, but the second one."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def get_topic_partitions_async(self, topic: str, done: Callable[..., None]) -> None:
        self.topics.append(topic)
        if len(self.topics) == 2:
            done(_pulsar.Result.Ok, [topic])


def test_a_silent_host_is_passed_over_by_a_question_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that ask for one topic wait for one answer: as long as the first host is silent."""
    monkeypatch.setattr(link_module, "_PROBED_AGAIN_AFTER_S", 0.0)
    client = Silent()

    async def scenario() -> None:
        await Connection(client, URL).probe("persistent://tenant/lanes/lane")

    asyncio.run(scenario())

    assert len(client.topics) == len(set(client.topics)) >= 2


def test_waking_a_closed_loop_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    called: list[int] = []

    wake(loop, called.append, 1)

    assert called == []


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "OPERATION_TIMEOUT_S", 1)
    settings = Settings(broker="pulsar://127.0.0.1:1")

    async def scenario() -> None:
        with pytest.raises(Unreachable, match=r"pulsar://127\.0\.0\.1:1 .*--broker"):
            async with open_connection(settings):
                pass

    asyncio.run(scenario())


def test_a_broker_url_without_a_host_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(BadInput, match="pulsar://"):
            async with open_connection(Settings(broker="pulsar://")):
                pass

    asyncio.run(scenario())


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2"
    options = f"-subj /CN={name} -addext subjectAltName=DNS:{name}"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*f"{make} {options}".split(), *files], check=True, capture_output=True)
    return certificate, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
@pytest.mark.parametrize(("name", "is_trusted"), [("localhost", True), ("broker.test", False)])
def test_a_broker_is_told_nothing_unless_its_certificate_is_for_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_trusted: bool
) -> None:
    monkeypatch.setattr(link_module, "OPERATION_TIMEOUT_S", 2)
    certificate, key = _certificate(tmp_path, name)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    told: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.read(4))
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        settings = Settings(broker=f"pulsar+ssl://localhost:{port}", pulsar_ca_file=certificate)
        async with server:
            with pytest.raises(Unreachable):
                async with open_connection(settings):
                    pass

    asyncio.run(scenario())

    assert any(told) is is_trusted


class Closing:
    """A client whose close waits until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.is_closed = threading.Event()

    def close(self) -> None:
        self.let_go.wait()
        self.is_closed.set()


async def test_a_close_is_waited_for() -> None:
    raw = Closing()
    closing = asyncio.create_task(Connection(raw, URL).close())
    await asyncio.sleep(0)
    assert not closing.done()

    raw.let_go.set()
    await closing

    assert raw.is_closed.is_set()


async def test_a_close_that_never_ends_is_given_up_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link_module, "CLOSE_PATIENCE_S", 0.01)
    raw = Closing()

    await Connection(raw, URL).close()

    assert not raw.is_closed.is_set()
    assert "did not close its connections" in caplog.text
    raw.let_go.set()


def test_it_loads_nothing_of_the_client_but_what_is_compiled() -> None:
    code = "import sys, pushlane.backends.pulsar; print(*{'pulsar', '_pulsar'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["_pulsar"]


def test_a_read_that_never_comes_back_holds_up_no_exit() -> None:
    """A reader that is asked for more while the broker is away, and then closed, answers nobody."""
    begun, comes_back = threading.Event(), threading.Event()

    def read() -> None:
        begun.set()
        comes_back.wait()

    async def read_and_give_up() -> None:
        reading = asyncio.create_task(blocking(Connection(None, URL), "read the task topic", read))
        while not begun.is_set():
            await asyncio.sleep(0)
        reading.cancel()

    process = threading.Thread(target=lambda: asyncio.run(read_and_give_up()), daemon=True)
    process.start()
    process.join(60.0)
    has_ended = not process.is_alive()
    comes_back.set()

    assert has_ended
