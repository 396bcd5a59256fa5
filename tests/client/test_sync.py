"""The client that blocks: one thread, any caller, no loop, no fork."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from pushlane import Client, MemoryBackend, Settings, SubmitRequest, UnknownTask, Unreachable
from pushlane.backends.backend import Backend
from pushlane.core.errors import PushlaneError

ROWS = [{"recipient": "ada"}]


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "pushlane-client"]


def test_it_does_the_same_and_its_thread_ends(settings) -> None:
    with Client.sync(settings) as client:
        made = client.submit(SubmitRequest(source=ROWS, level="high", title="Hi"))
        assert threads() == ["pushlane-client"]
        assert [task.id for task in client.tasks()] == [made.task.id]
        with pytest.raises(UnknownTask):
            client.task("sale")

    assert threads() == []


def test_threads_may_share_it() -> None:
    with (
        Client.sync(Settings(), connect=MemoryBackend().connect) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(lambda n: client.set_limit(f"app/app-{n}", total=n + 1), range(40)))

        assert len(client.limits()) == 40


def test_it_is_refused_where_a_loop_runs() -> None:
    async def use() -> None:
        with Client.sync(Settings()):
            pytest.fail("it began")

    with Client.sync(Settings(), connect=MemoryBackend().connect) as client:

        async def call() -> None:
            client.tasks()

        for work in (use, call):
            with pytest.raises(PushlaneError, match="this thread runs an event loop"):
                asyncio.run(work())


def test_one_that_is_not_open_says_so() -> None:
    client = Client.sync(Settings(), connect=MemoryBackend().connect)
    with pytest.raises(PushlaneError, match=r"is not open; use it inside `with Client.sync\(\)"):
        client.tasks()
    with client:
        with pytest.raises(PushlaneError, match="is open already"):
            client.__enter__()
        assert client.tasks() == []
    with client:
        assert client.tasks() == []


def test_what_keeps_it_from_opening_is_raised_and_no_thread_left() -> None:
    @asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[Backend]:
        raise Unreachable("nobody is there")
        yield

    with pytest.raises(Unreachable, match="nobody is there"):
        Client.sync(Settings(), connect=connect).__enter__()
    assert threads() == []


def test_it_says_that_it_was_opened_before_a_fork() -> None:
    with Client.sync(Settings(), connect=MemoryBackend().connect) as client:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                client.tasks()
            except PushlaneError as error:
                os.write(write, str(error).encode())
            finally:
                client.__exit__()
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)

        assert os.read(read, 1_000) == (
            b"the client was opened in another process, before a fork; open one in each process"
        )
        os.close(read)


def test_a_call_that_runs_while_it_is_closed_ends() -> None:
    client = Client.sync(Settings(), connect=MemoryBackend().connect)
    begun = threading.Event()

    async def hang(_: Client) -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor() as pool:
        with client:
            hanging = pool.submit(client._answer, hang)
            begun.wait()
        with pytest.raises(PushlaneError, match="was closed before this call had ended"):
            hanging.result()


_INTERRUPTED = """
from pushlane import Client, MemoryBackend, Settings, SubmitRequest
try:
    with Client.sync(Settings(), connect=MemoryBackend().connect) as client:
        rows = [{"recipient": "ada"}]
        task = client.submit(SubmitRequest(source=rows, level="high", title="Hi")).task
        print("waits", flush=True)
        client.wait(task.id)
except KeyboardInterrupt:
    import threading
    print([one.name for one in threading.enumerate()])
"""


def test_ctrl_c_ends_a_call_and_its_thread() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)

    assert (out, error, process.returncode) == ("['MainThread']\n", "", 0)
