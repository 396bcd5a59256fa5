"""`pushlane serve` as a process of its own, asked with a token, and stopped in any case."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import IO, Any, NamedTuple

from bench.backends import environment
from pushlane.core.errors import PushlaneError
from pushlane.settings import Settings

_START_S = 30.0
_ANSWER_S = 300.0
_STOP_S = 70.0
_LOOK_S = 0.002
_READY = re.compile(r"serving at http://([\d.]+:\d+)")


class Answered(NamedTuple):
    """An answer: its headers, with names in lower case, and its JSON."""

    headers: Mapping[str, str]
    json: Any


class Serving:
    """One running `serve`, on a port of its own, and a connection to it."""

    def __init__(self, settings: Settings, token: str) -> None:
        self._said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read until its end
        began_s = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pushlane", "serve", "--bind", "127.0.0.1:0"],
            env=environment(settings),
            stdin=subprocess.DEVNULL,
            stderr=self._said,
        )
        self.at = self._ready()
        self.started_s = time.perf_counter() - began_s
        """From the start of the process to where it listens."""
        self._headers = {"Authorization": f"Bearer {token}"}
        self._connection = HTTPConnection(self.at, timeout=_ANSWER_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lines: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """Ask for `/v1` + path, with JSON or lines. Raises PushlaneError for a refusal."""
        given = lines if body is None else json.dumps(body)
        self._connection.request(method, f"/v1{path}", given, {**self._headers, **(headers or {})})
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise PushlaneError(f"{method} {path} was refused: {answer.status} {told[:500]!r}")
        return Answered({n.lower(): one for n, one in answer.getheaders()}, json.loads(told))

    def stop(self) -> None:
        """SIGTERM; raises PushlaneError when it did not end well."""
        self._connection.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code:
            raise PushlaneError(f"serve ended with exit code {code}; it said:\n{self._text()}")

    def _ready(self) -> str:
        """The URL that it serves at; set once it listens."""
        deadline_s = time.monotonic() + _START_S
        while not (found := _READY.search(self._text())):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self._process.kill()
                self._process.wait()
                raise PushlaneError(f"serve did not start; it said:\n{self._text()}")
            time.sleep(_LOOK_S)
        return found[1]

    def _text(self) -> str:
        self._said.seek(0)
        return self._said.read()


@contextmanager
def serving(settings: Settings, token: str) -> Iterator[Serving]:
    """Serve meanwhile; stopped gently in the end."""
    process = Serving(settings, token)
    try:
        yield process
    finally:
        process.stop()
