"""The receiving ends of the demo and the benchmarks, and their logs: the evidence of what arrived.

A webhook receiver, and the emulators of providers, which are in `tests/emulators`: each runs as a
process of its own, writes a line for each push that it gets, and never its recipient.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dev import ROOT
from pushlane.core.errors import BadInput


class ArrivalLine(NamedTuple):
    """One delivery as the receiving end saw it; `at_s` is Unix time in seconds."""

    task: str
    seq: int
    level: str
    at_s: float


class Follower:
    """Reads a growing log; only whole lines count. `ids` are of tasks that it has by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: dict[str, str] = {}
        self._offset = 0
        self.arrivals: list[ArrivalLine] = []
        self.counts: Counter[str] = Counter()

    def read(self) -> Sequence[ArrivalLine]:
        """Return the arrivals since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = [
            ArrivalLine(
                self.ids.get(line["task"], line["task"]),
                line["seq"],
                line["level"],
                line["at_ms"] / 1000,
            )
            for line in msgspec.json.Decoder().decode_lines(whole)
        ]
        self.arrivals += new
        self.counts.update(arrival.task for arrival in new)
        return new

    def first(self, task: str) -> float | None:
        return next((arrival.at_s for arrival in self.arrivals if arrival.task == task), None)

    def last(self, task: str) -> float | None:
        return next(
            (arrival.at_s for arrival in reversed(self.arrivals) if arrival.task == task), None
        )


_NEEDED = ("h2", "jwt")


class Provider(StrEnum):
    """The providers that the demo can send to."""

    FCM = "fcm"


def require_emulator(provider: Provider) -> None:
    """Raise BadInput unless what the emulator of the provider needs is installed."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise BadInput(f"the emulator of {provider} needs h2 and PyJWT: pip install -e '.[demo]'")


@contextmanager
def _reached(what: str, *command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a module that says first where it can be reached; give its process, and what it said."""
    arguments = [sys.executable, "-m", *command]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if not said:
            raise RuntimeError(f"the {what} did not start: exit {process.wait()}")
        yield process, said
    finally:
        process.terminate()
        process.wait(timeout=10)


@contextmanager
def emulated(
    provider: Provider, folder: Path, log: Path, delay_ms: float
) -> Iterator[dict[str, object]]:
    """Run the emulator, which logs what arrives; give the options of a sink that sends to it."""
    keys = folder / "keys"
    flags = ["--keys", str(keys), "--log", str(log), "--latency-ms", str(delay_ms)]
    with _reached("emulator", f"tests.emulators.{provider}", *flags) as (_, url):
        credentials = str(keys / "service-account.json")
        yield {"kind": provider.value, "endpoint": url, "credentials_file": credentials}


Message = MutableMapping[str, Any]


class _Received(msgspec.Struct):
    task_id: str
    seq: int
    attempt: int
    level: str


class Receiver:
    """An ASGI application that appends a line to `log` for each push it is sent.

    It answers `status` after a fixed time, so that slots and that time make the sink's rate; to
    every second push 500 until it has had as many attempts as are to `refuse`. With `honour` it
    answers an Idempotency-Key that comes again, and does not log it. While it rests it answers 503,
    and logs nothing: from SIGUSR1 on until SIGUSR2.
    """

    def __init__(
        self, log: Path, delay_s: float, *, honour: bool = False, refuse: int = 0, status: int = 204
    ) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._delay_s = delay_s
        self._honour = honour
        self._refuse = refuse
        self._status = status
        self.rests = False
        self._keys: set[bytes] = set()
        self._decode = msgspec.json.Decoder(_Received).decode

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        push = self._decode(await _body(receive))
        status = 503 if self.rests else await self._taken(push, scope)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def _taken(self, push: _Received, scope: Message) -> int:
        """Log a push, and return its status once it is due."""
        key = dict(scope["headers"])[b"idempotency-key"] if self._honour else None
        if key is None or key not in self._keys:
            self._write(push)
        if key is not None:
            self._keys.add(key)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return self._status if push.seq % 2 or push.attempt > self._refuse else 500

    def _write(self, push: _Received) -> None:
        line = {
            "task": push.task_id,
            "seq": push.seq,
            "attempt": push.attempt,
            "level": push.level,
            "at_ms": time.time_ns() / 1e6,
        }
        os.write(self._log, msgspec.json.encode(line) + b"\n")


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


class RunningReceiver(NamedTuple):
    """A receiver in a process of its own."""

    process: subprocess.Popen[str]
    url: str

    def rest(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGUSR2)


@contextmanager
def receiving(log: Path, delay_ms: float, **options: Any) -> Iterator[RunningReceiver]:
    """Run a receiver; `options` are those of `Receiver`."""
    given = json.dumps({"delay_s": delay_ms / 1000, **options})
    with _reached("webhook receiver", "dev.receiver", str(log.absolute()), given) as found:
        process, port = found
        yield RunningReceiver(process, f"http://127.0.0.1:{port}/push")


@contextmanager
def running(log: Path, delay_ms: float, **options: Any) -> Iterator[str]:
    """Run a receiver that never rests; give the URL to post to."""
    with receiving(log, delay_ms, **options) as receiver:
        yield receiver.url


def main() -> None:
    import uvicorn

    log, options = sys.argv[1:]
    receiver = Receiver(Path(log), **json.loads(options))
    for number, rests in ((signal.SIGUSR1, True), (signal.SIGUSR2, False)):
        signal.signal(number, lambda *_, rests=rests: setattr(receiver, "rests", rests))
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        receiver, lifespan="off", access_log=False, log_level="warning", timeout_graceful_shutdown=1
    )
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
