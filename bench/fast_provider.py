"""A provider over HTTP/2 that keeps up with a fast client: it answers all pushes well, and logs.

A push is known by a word like `TASK-SEQ` in its path or body: as an FCM token, an APNs token (in
hexadecimal) or the last part of a Web Push endpoint. It checks nothing else: emulators in
tests/emulators do. It runs in granian, whose HTTP/2 is hyper's.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.certificates import Certificates
from pushlane.core.errors import PushlaneError

_LOG = "PUSHLANE_BENCH_PROVIDER_LOG"
_TAKES_S = "PUSHLANE_BENCH_PROVIDER_TAKES_S"
_WRITE_EVERY_S = 0.05
_STARTS_S = 20.0
_TOKEN = re.compile(rb'"token":\s*"([^"]+)-(\d+)"')
_JSON = [("content-type", "application/json")]
_ACCESS_TOKEN = b'{"access_token":"bench","expires_in":3600,"token_type":"Bearer"}'


class _Line(msgspec.Struct, gc=False):
    task: str
    seq: int
    at_ms: float
    attempt: int = 1
    level: str = ""


class Provider:
    """The application that granian runs; the environment tells it where to log.

    It is there once it has written its process id beside the log.
    """

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lines: list[_Line] = []
        self._takes_s = float(os.environ[_TAKES_S])
        self._file = Path(os.environ[_LOG]).open("ab")  # noqa: SIM115 - for its life
        _pid_file(Path(os.environ[_LOG])).write_text(f"{os.getpid()}\n")
        self._writing = loop.create_task(self._write())

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._append()

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        path, body = scope.path, await protocol()
        if path == "/token":
            protocol.response_bytes(200, _JSON, _ACCESS_TOKEN)
            return
        if path == "/":
            protocol.response_empty(204, [])
            return
        task, seq = _sent(path, body)
        self._lines.append(_Line(task, seq, time.time_ns() / 1e6))
        if self._takes_s:
            await asyncio.sleep(self._takes_s)
        if path.startswith("/v1/"):
            protocol.response_bytes(200, _JSON, b'{"name":"projects/bench/messages/1"}')
        else:
            protocol.response_empty(200 if path.startswith("/3/") else 201, [])

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            self._append()

    def _append(self) -> None:
        lines, self._lines = self._lines, []
        self._file.write(msgspec.json.Encoder().encode_lines(lines))
        self._file.flush()


def _sent(path: str, body: bytes) -> tuple[str, int]:
    if path.startswith("/3/device/"):
        word = bytes.fromhex(path.rpartition("/")[2]).decode()
    elif path.startswith("/push/"):
        word = path.rpartition("/")[2]
    else:
        found = _TOKEN.search(body)
        assert found is not None, "a message to FCM without a token"
        return found[1].decode(), int(found[2])
    task, _, seq = word.rpartition("-")
    return task, int(seq)


class FastProvider(NamedTuple):
    """The process that answers, which is a child of granian's own, and the URL."""

    pid: int
    url: str


@contextmanager
def fast_provider(
    log: Path, port: int, takes_s: float = 0.0, certificates: Certificates | None = None
) -> Iterator[FastProvider]:
    """Run one in processes of its own, with TLS where it has a certificate."""
    command = [sys.executable, "-m", "granian", "--interface", "rsgi", "--http", "auto", "--no-ws"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--loop", "uvloop"]
    if certificates is not None:
        command += ["--ssl-certificate", str(certificates.cert)]
        command += ["--ssl-keyfile", str(certificates.key)]
    command += ["--log-level", "error", "bench.fast_provider:provider"]
    _pid_file(log).unlink(missing_ok=True)
    environment = {**os.environ, _LOG: str(log), _TAKES_S: str(takes_s)}
    process = subprocess.Popen(command, env=environment)
    try:
        pid = _wait(port, process, _pid_file(log))
        scheme = "http" if certificates is None else "https"
        yield FastProvider(pid, f"{scheme}://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(timeout=20)


def _pid_file(log: Path) -> Path:
    return log.with_suffix(".pid")


def _wait(port: int, process: subprocess.Popen[bytes], pid_file: Path) -> int:
    """Wait until it listens there; return the id of the process that answers."""
    until = time.monotonic() + _STARTS_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise PushlaneError(f"granian ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if _says(pid_file) and probe.connect_ex(("127.0.0.1", port)) == 0:
                return int(pid_file.read_text())
        time.sleep(0.05)
    raise PushlaneError("granian did not listen in time")


def _says(pid_file: Path) -> bool:
    """Tell whether the whole line is there."""
    return pid_file.exists() and pid_file.read_text().endswith("\n")


provider = Provider()
