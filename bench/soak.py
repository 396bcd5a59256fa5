"""Whether a dispatcher's memory grows: constant load for minutes, its resident size every second.

The slope is that of a line through the second half, when pools and caches have filled.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.faults.catalogue import AT_LEAST_ONCE
from bench.faults.stream import Load, Stream, streaming
from bench.faults.world import World, worlds

_EVERY_S = 1.0
_KIB = 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--answer-ms", type=float, default=10.0, help="of the sink, 20 slots")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with worlds(options.broker) as new_world, new_world() as world:
        result = asyncio.run(_soak(world, options.minutes, Load(answer_ms=options.answer_ms)))
    if not options.json:
        _show(result)
    return {"broker": options.broker, "minutes": options.minutes, **result}


async def _soak(world: World, minutes: float, load: Load) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pushlane-soak-") as folder:
        async with streaming(world, AT_LEAST_ONCE, load, Path(folder)) as stream:
            async with stream.flowing():
                await stream.went_on(time.time())
                sizes = await _sizes(stream, minutes * 60)
                unfinished = await stream.finished()
            await stream.stop_all()
            return _result(stream, sizes, unfinished)


async def _sizes(stream: Stream, lasting_s: float) -> list[int]:
    """The dispatcher's resident bytes, once a second."""
    sizes = []
    for _ in range(max(4, round(lasting_s / _EVERY_S))):
        await asyncio.sleep(_EVERY_S)
        sizes.append(_resident_bytes(stream.forks[0].pid))
    return sizes


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _result(stream: Stream, sizes: Sequence[int], unfinished: int) -> dict[str, Any]:
    half = sizes[len(sizes) // 2 :]
    tally = stream.oracle.tally
    return {
        "pushes": stream.feeder.written,
        "rss_mb_first": round(sizes[0] / _KIB / _KIB, 1),
        "rss_mb_half": round(half[0] / _KIB / _KIB, 1),
        "rss_mb_last": round(half[-1] / _KIB / _KIB, 1),
        "slope_kib_per_minute": round(slope(half) * 60 / _EVERY_S / _KIB, 1),
        "lost": len(tally.lost(stream.feeder.totals)),
        "duplicates": tally.duplicates,
        "unfinished": unfinished,
    }


def slope(values: Sequence[float]) -> float:
    """Of the least-squares line through the values, a step."""
    middle = (len(values) - 1) / 2
    spread = sum((place - middle) ** 2 for place in range(len(values)))
    return sum((place - middle) * value for place, value in enumerate(values)) / spread


def _show(result: dict[str, Any]) -> None:
    table = Table("figure", "measured", title="A dispatcher's memory at constant load")
    for name, value in result.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    Console().print(table)
