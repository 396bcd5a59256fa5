"""A webhook receiver for the demo and the benchmarks: its log is the evidence of what arrived.

Answers 204 after a fixed time, so that slots and that time make the sink's rate. It logs task, seq,
attempt and level of each push as it arrives, and never the recipient. With `honour` it answers an
Idempotency-Key that comes again, and does not log it.
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

    It answers 500 to as many attempts at every second push as it is to `refuse`.
    """

    def __init__(self, log: Path, delay_s: float, *, honour: bool = False, refuse: int = 0) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._delay_s = delay_s
        self._honour = honour
        self._refuse = refuse
        self._keys: set[bytes] = set()
        self._decode = msgspec.json.Decoder(_Received).decode

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        push = self._decode(await _body(receive))
        if not self._honour or self._is_new(dict(scope["headers"])[b"idempotency-key"]):
            self._write(push)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        status = 204 if push.seq % 2 or push.attempt > self._refuse else 500
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

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


@contextmanager
def running(log: Path, delay_ms: float, *, honour: bool = False, refuse: int = 0) -> Iterator[str]:
    """Run a receiver in a process of its own; give the URL to post to."""
    options = {"delay_s": delay_ms / 1000, "honour": honour, "refuse": refuse}
    command = [sys.executable, "-m", "pushlane.cli.demo.receiver", str(log), json.dumps(options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the webhook receiver did not start: exit {process.wait()}")
        yield f"http://127.0.0.1:{port}/push"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)


def main() -> None:
    import uvicorn

    log, options = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        Receiver(Path(log), **json.loads(options)),
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
