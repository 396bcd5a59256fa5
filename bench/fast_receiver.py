"""A webhook receiver that keeps up with a fast client: just enough of HTTP/1.1, and a log.

Answers 204 at once, or after as long as is asked for a level or a task; with TLS where it has a
certificate. Its log has the lines of the receiver of the demo, written many at a time. Not for use
without a client that is ours: it takes every header's word for it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec
import uvloop

from bench.certificates import Certificates

_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_WRITE_EVERY_S = 0.05
_READ_BYTES = 1 << 16


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


class TlsConnection(asyncio.Protocol):
    """TLS below a connection, by OpenSSL in memory, which costs less than the loop's own."""

    def __init__(self, context: ssl.SSLContext, above: Connection) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._above = above
        self._is_shaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._above.connection_made(cast(asyncio.BaseTransport, self))

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            with suppress(ssl.SSLWantReadError):
                self._read()
        except ssl.SSLError:
            self._transport.close()
        self._send()

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        self._send()

    def _read(self) -> None:
        if not self._is_shaken:
            self._tls.do_handshake()
            self._is_shaken = True
        while self._incoming.pending or self._tls.pending():
            self._above.data_received(self._tls.read(_READ_BYTES))

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())


class FastReceiver(NamedTuple):
    pid: int
    url: str


@contextmanager
def fast_receiver(
    log: Path,
    takes_s: Mapping[str, float] | None = None,
    certificates: Certificates | None = None,
) -> Iterator[FastReceiver]:
    """One in a process of its own; `takes_s` by task or level."""
    command = [sys.executable, "-m", "bench.fast_receiver", str(log)]
    command += [f"--takes={name}={seconds}" for name, seconds in (takes_s or {}).items()]
    if certificates is not None:
        command += ["--cert", str(certificates.cert), "--key", str(certificates.key)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the fast receiver did not start: exit {process.wait()}")
        scheme = "http" if certificates is None else "https"
        yield FastReceiver(process.pid, f"{scheme}://127.0.0.1:{port}/push")
    finally:
        process.terminate()
        process.wait(timeout=10)


async def _serve(path: Path, takes_s: Mapping[str, float], tls: ssl.SSLContext | None) -> None:
    stopped = asyncio.Event()
    with path.open("ab") as file:
        log = Log(file)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)

        def connection() -> asyncio.Protocol:
            above = Connection(log, takes_s)
            return above if tls is None else TlsConnection(tls, above)

        server = await loop.create_server(connection, "127.0.0.1", 0)
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
    parser.add_argument("--cert", type=Path, help="PEM file, for TLS")
    parser.add_argument("--key", type=Path, help="PEM file, for TLS")
    options = parser.parse_args()
    tls = _tls(options.cert, options.key) if options.cert else None
    takes = (one.split("=") for one in options.takes)
    uvloop.run(_serve(options.log, {name: float(seconds) for name, seconds in takes}, tls))


def _tls(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


if __name__ == "__main__":
    main()
