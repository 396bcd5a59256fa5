"""An HTTP/1.1 server that answers as it is told, for emulators of what speaks no HTTP/2.

Each emulator on it can be run as a process; `served` has what their command lines share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from tests.emulators.http2_server import Answer, Reaction, Request, Reset, Silence


class Http1Server:
    """Asks `react` what becomes of each request. A Reset ends the connection."""

    def __init__(self, react: Callable[[Request], Reaction]) -> None:
        self.react = react
        self.requests: list[Request] = []
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[Http1Server]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ends = asyncio.Event()
        try:
            yield self
        finally:
            self._ends.set()
            server.close()
            for writer in self._serving.values():
                writer.transport.abort()
            await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)
        try:
            while not self._ends.is_set():
                request = await _read(reader)
                self.requests.append(request)
                reaction = self.react(request)
                await asyncio.sleep(reaction.after_s)
                if isinstance(reaction, Answer):
                    writer.write(_written(reaction))
                    await writer.drain()
                elif isinstance(reaction, Silence):
                    await self._ends.wait()
                else:
                    assert isinstance(reaction, Reset), f"HTTP/1.1 has no {reaction}"
                    writer.transport.abort()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.split(": ", 1) for line in lines)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


def _written(answer: Answer) -> bytes:
    headers = {"Content-Length": str(len(answer.body)), **answer.headers}
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Other"
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + answer.body


def options(what: str) -> argparse.ArgumentParser:
    """The command line that every emulator has."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--log", type=Path, help="appends a JSON line for each delivered push")
    return parser


def served(react: Callable[[Request], Reaction], port: int, path: str) -> None:
    """Serve until the process is told to end; the first line of stdout is the URL."""

    async def serve() -> None:
        ends = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ends.set)
        async with Http1Server(react).running(port) as server:
            print(f"{server.url}{path}", flush=True)
            await ends.wait()

    asyncio.run(serve())


def note(log: Path | None, push_id: str) -> None:
    """Append the line of a delivered push, which holds nothing of its recipient."""
    if log is not None:
        task, _, seq = push_id.rpartition("-")
        with log.open("a") as lines:
            lines.write(json.dumps({"task": task, "seq": int(seq) if seq.isdigit() else 0}) + "\n")
