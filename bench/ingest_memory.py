"""Measures the memory of `pushlane ingest` after some records, and after ten times as many.

It reads a topic that has them all when it starts, so it is never idle before its end.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.backends import environment
from bench.figures import Figure, at_most, say
from bench.resident import peak_kib, resident_kib
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level
from pushlane.ingest.kafka_topic import Place
from pushlane.ingest.position import all_positions
from pushlane.model.streams import Stream, change_stream
from pushlane.settings import Settings

_STREAM = Stream(name="memory", app="bench", level=Level.HIGH, created_at_ms=1)
_MAPPING = 'recipient = "recipient"\ntitle = { value = "Sale" }\n'
_TIMES = 10
_FLAT = 1.1
_LOOK_S = 0.2
_STOP_S = 60.0
_LAST_LINES = 20


def small_records(count: int) -> Iterator[bytes]:
    """Records of which the mapping makes pushes without a function."""
    for n in range(count):
        yield b'{"recipient": "device-%08d"}' % n


def measured(settings: Settings, place: Place, records: int) -> dict[str, Any]:
    """Return the memory of one process that reads so many records, which are there."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as mapping:
        mapping.write(_MAPPING)
        mapping.flush()
        return asyncio.run(_measured(settings, place, records, mapping.name))


async def _measured(settings: Settings, place: Place, records: int, mapping: str) -> dict[str, Any]:
    async with connect(settings) as backend:
        await change_stream(backend.documents, _STREAM.app, _STREAM.name, lambda _: _STREAM)
        with _reading(settings, place, mapping) as process:
            few = await _held_after(backend, process, records // _TIMES)
            many = await _held_after(backend, process, records)
    return {
        "memory_records": records,
        "rss_mb": [round(kib / 1024, 1) for kib in (few[0], many[0])],
        "peak_rss_mb": [round(kib / 1024, 1) for kib in (few[1], many[1])],
        "memory_growth": round(many[0] / few[0], 3),
    }


@contextmanager
def _reading(settings: Settings, place: Place, mapping: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "pushlane", "ingest", place.url]
    options = ["--stream", _STREAM.name, "--mapping", mapping]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [*command, *options], env=environment(settings), stdin=subprocess.DEVNULL, stderr=said
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(_STOP_S)
        finally:
            process.kill()
            if process.wait() > 0:
                said.seek(0)
                say("".join(said.readlines()[-_LAST_LINES:]))


async def _held_after(
    backend: Backend, process: subprocess.Popen[bytes], records: int
) -> tuple[int, int]:
    """Return its resident memory once so many are done, and the most until then, in KiB."""
    done = 0
    while done < records:
        if process.poll() is not None:
            raise PushlaneError(f"the ingest ended with exit code {process.returncode}")
        await asyncio.sleep(_LOOK_S)
        there = await all_positions(backend.documents, _STREAM)
        done = sum(positions.lowest for positions in there.values())
    held = resident_kib(process.pid), peak_kib(process.pid)
    say(f"  after {done:,}: {held[0] / 1024:,.1f} MiB, {held[1] / 1024:,.1f} at most")
    return held


def figures(result: dict[str, Any]) -> list[Figure]:
    few, many = result["rss_mb"]
    most_few, most_many = result["peak_rss_mb"]
    records = result["memory_records"]
    return [
        Figure(
            f"resident after {records // _TIMES:,} small records; at most until then",
            f"{few:g} MiB; {most_few:g} MiB",
        ),
        Figure(f"the same of {records:,}", f"{many:g} MiB; {most_many:g} MiB"),
        at_most("growth from the one to the other", result["memory_growth"], _FLAT),
    ]
