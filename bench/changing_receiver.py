"""Webhook receivers that keep up with a fast client, one a sink, and change when they are told to.

All are in one process. Each has a port and a log of its own, with the lines of the demo's receiver.
Standard input says `NAME ok`, `NAME slow`, `NAME throttle` or `NAME refuse`, a line each, and is
answered `done`. A push that is refused is not logged, since it did not arrive.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop

from bench.fast_receiver import Connection, Log

TAKES_S = 0.25  # long beside what a busy machine adds to it
SLOWER = 50
MOODS = ("ok", "slow", "throttle", "refuse")
_BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_WRITE_EVERY_S = 0.05


class Receivers:
    """The receivers as seen by who started them."""

    def __init__(self, process: subprocess.Popen[str], urls: dict[str, str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.urls = urls

    def log(self, name: str) -> Path:
        return _log_of(self._folder, name)

    def change(self, name: str, mood: str) -> None:
        """Return once the receiver does as it is told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name} {mood}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "done":
            raise RuntimeError(f"the receiver of {name} did not change")


@contextmanager
def changing_receivers(folder: Path, names: Sequence[str]) -> Iterator[Receivers]:
    """Run a receiver for each name, whose logs are in `folder`; it ends with its input."""
    command = [sys.executable, "-m", "bench.changing_receiver", str(folder), *names]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ports = process.stdout.readline().split()
        if len(ports) != len(names):
            raise RuntimeError(f"the receivers did not start: exit {process.wait()}")
        urls = [f"http://127.0.0.1:{port}/push" for port in ports]
        yield Receivers(process, dict(zip(names, urls, strict=True)), folder)
    finally:
        process.stdin.close()
        process.wait(timeout=10)


class _Desk:
    """One receiver: its log, its port, and how it is minded to answer."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.mood = "ok"
        self.port = 0
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def takes_s(self) -> float:
        return TAKES_S * SLOWER if self.mood == "slow" else TAKES_S

    async def change(self, mood: str) -> None:
        self.mood = mood
        if mood == "refuse":
            self._stop()
        elif self._server is None:
            await self.listen()

    async def listen(self) -> None:
        """Listen, after a refusal at the port that is known."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.leave()


class _Connection(Connection):
    """Answers as its desk is minded. Who leaves has answered what had come."""

    def __init__(self, desk: _Desk) -> None:
        super().__init__(desk.log, {})
        self._desk = desk
        self._unanswered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._desk.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._desk.connections.discard(self)

    def take(self, request: bytes) -> None:
        if self._desk.mood == "throttle":
            self._transport.write(_BUSY)
        elif self._desk.mood != "refuse":
            self._log.add(request)
            self._unanswered += 1
            asyncio.get_running_loop().call_later(self._desk.takes_s, self._answer_late)

    def leave(self) -> None:
        if not self._unanswered:
            self._transport.close()

    def _answer_late(self) -> None:
        self._unanswered -= 1
        self.answer()
        if self._desk.mood == "refuse":
            self.leave()


def _log_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


async def _serve(folder: Path, names: Sequence[str]) -> None:
    files = [_log_of(folder, name).open("ab") for name in names]
    desks = {name: _Desk(Log(file)) for name, file in zip(names, files, strict=True)}
    for desk in desks.values():
        await desk.listen()
    _say(" ".join(str(desk.port) for desk in desks.values()))
    writing = asyncio.create_task(_write(desks))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    while line := await commands.readline():
        name, mood = line.decode().split()
        await desks[name].change(mood)
        _say("done")
    writing.cancel()
    for desk in desks.values():
        desk.log.write()


async def _write(desks: dict[str, _Desk]) -> None:
    while True:
        await asyncio.sleep(_WRITE_EVERY_S)
        for desk in desks.values():
            desk.log.write()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    uvloop.run(_serve(options.folder, options.names))


if __name__ == "__main__":
    main()
