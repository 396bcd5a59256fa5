"""A webhook receiver for the demo and the benchmarks: its log is the evidence of what arrived.

Answers 204 after a fixed time, so that slots and that time make the sink's rate. It logs task, seq,
attempt and level of each push as it arrives, and never the recipient. With `honour` it answers an
Idempotency-Key that comes again, and does not log it. While it rests it answers 503, and logs
nothing: from SIGUSR1 on until SIGUSR2.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

Message = MutableMapping[str, Any]


class _Received(msgspec.Struct):
    task_id: str
    seq: int
    attempt: int
    level: str


class Receiver:
    """An ASGI application that appends a line to `log` for each push it is sent.

    It answers 500 to as many attempts at every second push as it is to `refuse`, and `status` to
    all others.
    """

    def __init__(
        self,
        log: Path,
        delay_s: float,
        *,
        honour: bool = False,
        refuse: int = 0,
        status: int = 204,
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
        if not self._honour or self._is_new(dict(scope["headers"])[b"idempotency-key"]):
            self._write(push)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return self._status if push.seq % 2 or push.attempt > self._refuse else 500

    def _is_new(self, key: bytes) -> bool:
        known = len(self._keys)
        self._keys.add(key)
        return len(self._keys) > known

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


class RunningReceiver:
    """A receiver in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    def rest(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGUSR2)


@contextmanager
def receiving(log: Path, delay_ms: float, **options: Any) -> Iterator[RunningReceiver]:
    """Run a receiver; `options` are those of `Receiver`."""
    given = json.dumps({"delay_s": delay_ms / 1000, **options})
    command = [sys.executable, "-m", "pushlane.cli.demo.receiver", str(log), given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the webhook receiver did not start: exit {process.wait()}")
        yield RunningReceiver(process, f"http://127.0.0.1:{port}/push")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)


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
        receiver,
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
