"""The receiving end of the fault benchmark: a webhook in a process that is never killed.

It appends each arrival to its log and syncs that to disk before it answers; requests that come
meanwhile share the next sync. When it tells that a push was kept, the log has that, too. A share of
the answers is `slow`. Commands (`bench.faults.commands`)
come as JSON lines on stdin, and it ends with that. With `honour`, a kept Idempotency-Key that comes
again is answered, not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import struct
import sys
import time
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import httptools
import msgspec

from bench.faults.commands import Command

_KEPT = b"HTTP/1.1 204 No Content\r\n\r\n"
_HALF_ANSWERS = (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", b"HTTP/1.1")
_REFUSALS = {
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
}
_SLOW_S = (0.1, 0.3)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Received(msgspec.Struct):
    task_id: str
    seq: int
    attempt: int


class Connection(asyncio.Protocol):
    """One connection of a dispatcher, with one request at a time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._key = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._desk.connections.add(self)
        if self._desk.is_deaf:
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._desk.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.reset()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"idempotency-key":
            self._key = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._desk.receive(self, self._key, body)

    def answer(self, answer: bytes) -> None:
        self.transport.write(answer)

    def cut(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """Close with a RST."""
        if (connection := self.transport.get_extra_info("socket")) is not None:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()


class _Answer(NamedTuple):
    after_s: float
    connection: Connection
    push: _Received
    answer: str


_AFTER = attrgetter("after_s")


class Desk:
    """Writes down what arrives, then answers as it was told to behave."""

    def __init__(self, log: Path, delay_s: float, slow: float, honour: bool) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._delay_s = delay_s
        self._slow = slow
        self._honour = honour
        self._kept: set[str] = set()
        self._decode = msgspec.json.Decoder(_Received).decode
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._answers: list[_Answer] = []
        self._arrived = asyncio.Event()
        self._left: list[Connection] = []
        self._behaviour = Command("behave")
        self._tell_after = 0
        self.connections: set[Connection] = set()
        self.is_deaf = False

    def receive(self, connection: Connection, key: str, body: bytes) -> None:
        push = self._decode(body)
        answer = self._answer(key)
        line: dict[str, Any] = {
            "task": push.task_id,
            "seq": push.seq,
            "attempt": push.attempt,
            "key": key,
            "answer": answer,
            "at_ms": time.time_ns() / 1e6,
        }
        self._lines.append(self._encode(line) + b"\n")
        self._answers.append(_Answer(self._after_s(), connection, push, answer))
        self._arrived.set()

    def _after_s(self) -> float:
        return random.uniform(*_SLOW_S) if random.random() < self._slow else self._delay_s

    def _answer(self, key: str) -> str:
        how = self._behaviour.how
        if how == "ok" or random.random() >= self._behaviour.share:
            how = "kept"
        how = "held" if how == "hold" else how
        if self._honour and how in ("kept", "held", "cut"):
            if key in self._kept:
                return "known"
            self._kept.add(key)
        return how

    async def write(self) -> None:
        """One sync for all that came during the last one."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            lines, self._lines = self._lines, []
            answers, self._answers = self._answers, []
            await asyncio.to_thread(self._sync, b"".join(lines))
            loop, answers = asyncio.get_running_loop(), sorted(answers, key=_AFTER)
            for after_s, some in groupby(answers, key=_AFTER):
                loop.call_later(after_s, self._send, list(some))

    def _sync(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._log, data) :]
        os.fsync(self._log)

    def _send(self, answers: list[_Answer]) -> None:
        self._note_told(answers)
        for one in answers:
            self._send_one(one.connection, one.answer)
        if self._tell_after:
            self._tell_after = max(0, self._tell_after - len(answers))
            if not self._tell_after:
                say("told")

    def _note_told(self, answers: list[_Answer]) -> None:
        """Write down which pushes are told now that they were kept; that needs no sync."""
        at_ms = time.time_ns() / 1e6
        told = [
            {"task": push.task_id, "seq": push.seq, "told_ms": at_ms}
            for _, _, push, answer in answers
            if answer == "kept"
        ]
        os.write(self._log, b"".join(self._encode(line) + b"\n" for line in told))

    def _send_one(self, connection: Connection, answer: str) -> None:
        if answer in ("kept", "known"):
            connection.answer(_KEPT)
        elif answer in _REFUSALS:
            connection.answer(_REFUSALS[answer])
        elif answer == "reset":
            connection.reset()
        elif answer == "cut":
            connection.answer(random.choice(_HALF_ANSWERS))
            connection.cut()
        else:
            self._left.append(connection)

    def obey(self, command: Command) -> None:
        if command.do == "behave":
            self._behaviour = command
        elif command.do == "tell":
            self._tell_after = command.after
        elif command.do == "free":
            for connection in self._left:
                connection.reset()
            self._left.clear()
        else:
            self._listen(command.do == "hear")

    def cut_all(self) -> None:
        for connection in list(self.connections):
            connection.reset()

    def _listen(self, hears: bool) -> None:
        self.is_deaf = not hears
        for connection in list(self.connections):
            if hears:
                connection.reset()
            else:
                connection.transport.pause_reading()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def serve(log: Path, delay_ms: float, slow: float, honour: bool) -> None:
    desk = Desk(log, delay_ms / 1000, slow, honour)
    server = await _listening(desk, 0)
    port = server.sockets[0].getsockname()[1]
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    writing = asyncio.create_task(desk.write())
    say(str(port))
    while line := await commands.readline():
        command = msgspec.json.decode(line, type=Command)
        if command.do == "refuse":
            server.close()
            desk.cut_all()
        elif command.do == "accept":
            server = await _listening(desk, port)
        else:
            desk.obey(command)
        say("done")
    writing.cancel()


async def _listening(desk: Desk, port: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(desk), "127.0.0.1", port, backlog=1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("delay_ms", type=float)
    parser.add_argument("slow", type=float)
    parser.add_argument("--honour", action="store_true")
    options = parser.parse_args()
    asyncio.run(serve(options.log, options.delay_ms, options.slow, options.honour))


if __name__ == "__main__":
    main()
