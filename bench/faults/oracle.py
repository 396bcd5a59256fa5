"""This side of the receiving end: starts it, tells it how to behave, and reads its log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.faults.commands import Command
from bench.faults.verdict import TOLD, Arrival, Tally

_COMMAND_DEADLINE_S = 10.0
_TELL_DEADLINE_S = 90.0
_END_DEADLINE_S = 10.0
_READ_AT_ONCE = 4 << 20


class _Line(msgspec.Struct):
    task: str
    seq: int
    attempt: int = 0
    answer: str = TOLD
    at_ms: float = 0.0
    told_ms: float = 0.0


class Oracle:
    """The only witness of what was delivered."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
        self._process = process
        self._done: asyncio.Queue[None] = asyncio.Queue()
        self._told = asyncio.Event()
        self._path = log
        self._log = log.open("rb")
        self._rest = b""
        self._decode = msgspec.json.Decoder(_Line).decode
        self.url = url
        self.tally = Tally()

    async def listen(self) -> None:
        """Take what it says, until it ends."""
        assert self._process.stdout is not None
        while said := await self._process.stdout.readline():
            if said.strip() == b"told":
                self._told.set()
            else:
                self._done.put_nowait(None)

    def read(self) -> list[Arrival]:
        """The whole lines that its log has got since the last time, counted in the tally."""
        lines = (self._rest + self._log.read(_READ_AT_ONCE)).splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        new = [self._arrival(line) for line in lines]
        self.tally.add(new)
        return [arrival for arrival in new if arrival.answer != TOLD]

    def tally_of(self, tasks: Collection[str]) -> Tally:
        """The tally of these tasks alone, from the whole log."""
        tally = Tally()
        with self._path.open("rb") as log:
            arrivals = map(self._arrival, log)
            tally.add(arrival for arrival in arrivals if arrival.task in tasks)
        return tally

    async def behave(self, how: str = "ok", share: float = 1.0) -> None:
        await self._do(Command("behave", how, share))

    async def deaf(self) -> None:
        await self._do(Command("deaf"))

    async def hear(self) -> None:
        await self._do(Command("hear"))

    async def refuse(self) -> None:
        await self._do(Command("refuse"))

    async def accept(self) -> None:
        await self._do(Command("accept"))

    async def free(self) -> None:
        await self._do(Command("free"))

    async def arrivals(self, count: int) -> None:
        """Return at once when so many more have been answered (or held)."""
        self._told.clear()
        await self._do(Command("tell", after=count))
        await asyncio.wait_for(self._told.wait(), _TELL_DEADLINE_S)

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), _END_DEADLINE_S)
        self._log.close()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _do(self, command: Command) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        await asyncio.wait_for(self._done.get(), _COMMAND_DEADLINE_S)

    def _arrival(self, line: bytes) -> Arrival:
        read = self._decode(line)
        at_s = (read.at_ms or read.told_ms) / 1000
        return Arrival(read.task, read.seq, read.attempt, read.answer, at_s)


@asynccontextmanager
async def receiving(
    log: Path, delay_ms: float, slow: float, *, honour: bool
) -> AsyncIterator[Oracle]:
    """A receiving end in a process of its own, in a session of its own: Ctrl-C leaves it alone."""
    words = [sys.executable, "-m", "bench.faults.receiver", str(log), str(delay_ms), str(slow)]
    process = await asyncio.create_subprocess_exec(
        *words,
        *(["--honour"] if honour else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    port = (await process.stdout.readline()).decode().strip()
    if not port:
        raise RuntimeError(f"the receiving end did not start: exit {await process.wait()}")
    oracle = Oracle(process, f"http://127.0.0.1:{port}/push", log)
    listening = asyncio.create_task(oracle.listen())
    try:
        yield oracle
        await oracle.end()
    finally:
        oracle.kill()
        await process.wait()
        listening.cancel()
