"""A webhook receiver that keeps up with a fast client: just enough of HTTP/1.1, and a log.

Answers 204 at once, or after as long as is asked for a level or a task. Its log has the lines of
the receiver of the demo, written many at a time. Not for use without a client that is ours: it
takes every header's word for it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec
import uvloop

_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_WRITE_EVERY_S = 0.05


class _Received(msgspec.Struct, gc=False):
    task_id: str
    seq: int
    attempt: int
    level: str


class _Line(msgspec.Struct, gc=False):
    task: str
    seq: int
    attempt: int
    level: str
    at_ms: float


class Log:
    """Lines wait in memory for a moment; `write` appends them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lines: list[_Line] = []
        self._decode = msgspec.json.Decoder(_Received).decode
        self._encode = msgspec.json.Encoder().encode_lines

    def add(self, body: bytes) -> _Received:
        push = self._decode(body)
        at_ms = time.time_ns() / 1e6
        self._lines.append(_Line(push.task_id, push.seq, push.attempt, push.level, at_ms))
        return push

    def write(self) -> None:
        lines, self._lines = self._lines, []
        self._file.write(self._encode(lines))
        self._file.flush()


class Connection(asyncio.Protocol):
    """One request after the other, each with a body of a known length.

    `takes_s` says how long an answer takes, by task or level; at once by default.
    """

    def __init__(self, log: Log, takes_s: Mapping[str, float]) -> None:
        self._log = log
        self._takes_s = takes_s
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        while (request := self._next()) is not None:
            self.take(request)

    def take(self, request: bytes) -> None:
        """Log a push and answer it in its time."""
        push = self._log.add(request)
        takes_s = self._takes_s.get(push.task_id, self._takes_s.get(push.level, 0.0))
        if takes_s:
            asyncio.get_running_loop().call_later(takes_s, self.answer)
        else:
            self.answer()

    def answer(self) -> None:
        self._transport.write(_ANSWER)

    def _next(self) -> bytes | None:
        """The body of the next request that is there as a whole."""
        end = self._data.find(_END)
        if end < 0:
            return None
        _, _, length_on = self._data[:end].lower().partition(_LENGTH)
        length = int(length_on.partition(b"\r\n")[0])
        start = end + len(_END)
        if len(self._data) < start + length:
            return None
        body = self._data[start : start + length]
        self._data = self._data[start + length :]
        return body


class FastReceiver(NamedTuple):
    pid: int
    url: str


@contextmanager
def fast_receiver(log: Path, takes_s: Mapping[str, float] | None = None) -> Iterator[FastReceiver]:
    """One in a process of its own; `takes_s` by task or level."""
    command = [sys.executable, "-m", "bench.fast_receiver", str(log)]
    command += [f"--takes={name}={seconds}" for name, seconds in (takes_s or {}).items()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the fast receiver did not start: exit {process.wait()}")
        yield FastReceiver(process.pid, f"http://127.0.0.1:{port}/push")
    finally:
        process.terminate()
        process.wait(timeout=10)


async def _serve(path: Path, takes_s: Mapping[str, float]) -> None:
    stopped = asyncio.Event()
    with path.open("ab") as file:
        log = Log(file)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        server = await loop.create_server(lambda: Connection(log, takes_s), "127.0.0.1", 0)
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        while not stopped.is_set():
            await asyncio.sleep(_WRITE_EVERY_S)
            log.write()
        server.close()
        log.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--takes", metavar="NAME=SECONDS", action="append", default=[])
    options = parser.parse_args()
    takes = (one.split("=") for one in options.takes)
    uvloop.run(_serve(options.log, {name: float(seconds) for name, seconds in takes}))


if __name__ == "__main__":
    main()
