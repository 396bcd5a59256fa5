"""Times the HTTP API: lines streamed in beside `submit`, a change, the start, and what it holds.

`pushlane serve` is a process of its own, asked over loopback, with the broker and all else on this
machine. The same pushes are sent as lines and submitted as a file, in turns: from the create to the
seal, and from the start of `submit` to its end. Single pushes of a stream come on 32 connections,
each answered once it is durable, before the next on its connection. A quota is set over and over
on one. Beside 10,000 tasks of three levels and fifty apps that run, changes of the weights are
previewed over and over, and one task is asked why it waits. 999 streams of events are opened that
nothing comes on. Then `serve` is started beside many tasks, and asked for some; `tasks` is run
there on the store and through the server, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pyreqwest.client import ClientBuilder

from bench.backends import anew, backend_settings, environment
from bench.backlog import add_tasks
from bench.figures import Figure, at_least, at_most, say
from bench.resident import resident_kib
from bench.serving import Serving, serving
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.presence import Process, ServedSink
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller
from pushlane.settings import Settings
from pushlane.version import VERSION

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_BODY = "x" * 100
_ROUNDS = 3
_A_PART = 1_000
_SINGLES = 10_000
_AT_ONCE = 32
_CHANGES = 1_000
_WARM = 50
_LOOKS = 20
_TURNS = 5
_RATE, _RATIO = 20_000, 0.5
_SINGLES_PER_S, _SINGLE_P99_MS = 1_500, 50.0
_QUOTA_P99_MS = 50.0
_RUNNING, _APPS, _PREVIEWS = 10_000, 50, 300
_PREVIEW_P99_MS, _WHY_S = 300.0, 1.0
_STREAMS, _STREAMS_MIB, _OPEN_S = 999, 64, 60.0
_ADDED_AT_ONCE, _ANNOUNCED_S = 500, 600.0
_START_S = 1.0
_MIB = 128
_REMOTE_RATIO = 1.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--pushes", type=int, default=200_000, help="sent, and submitted")
    parser.add_argument(
        "--tasks", type=int, default=100_000, help="beside which its memory is read"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    with (
        backend_settings(options.broker) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-api-") as folder,
    ):
        lines_per_s, submit_per_s = _sent(settings, Path(folder), options.pushes)
        crowded = anew(settings)
        return {
            "broker": options.broker,
            "pushes": options.pushes,
            "pushes_per_s": round(statistics.median(lines_per_s)),
            "submit_per_s": round(statistics.median(submit_per_s)),
            "submit_ratio": round(
                statistics.median(
                    ours / other for ours, other in zip(lines_per_s, submit_per_s, strict=True)
                ),
                2,
            ),
            **_singles(anew(settings)),
            **_changed(anew(settings)),
            **_previewed(anew(settings)),
            **_watched(anew(settings)),
            "start_s": round(statistics.median(_starts(anew(settings))), 2),
            "tasks": options.tasks,
            **_beside(crowded, options.tasks),
        }


def figures(result: dict[str, Any]) -> list[Figure]:
    rate, ratio = result["pushes_per_s"], result["submit_ratio"]
    either = rate >= _RATE or ratio >= _RATIO
    return [
        Figure("pushes/s, sent as lines", f"{rate:,}", f"≥ {_RATE:,}, or", either),
        Figure("of the rate of `submit`", f"{ratio:g}", f"≥ {_RATIO:g}", either),
        Figure("`submit`, pushes/s", f"{result['submit_per_s']:,}"),
        at_least("single pushes/s", result["single_per_s"], _SINGLES_PER_S, "{:,}"),
        at_most("a single push, ms (99 of 100)", result["single_p99_ms"], _SINGLE_P99_MS),
        Figure("a change of a quota, ms (median)", f"{result['quota_p50_ms']:g}"),
        at_most("the same, 99 of 100", result["quota_p99_ms"], _QUOTA_P99_MS),
        at_most(
            f"a preview beside {_RUNNING:,} tasks, ms (99 of 100)",
            result["preview_p99_ms"],
            _PREVIEW_P99_MS,
        ),
        at_most(f"`why` of one beside {_RUNNING:,}, s", result["why_s"], _WHY_S),
        at_most(f"MiB for {_STREAMS} idle streams", result["idle_streams_mib"], _STREAMS_MIB),
        at_most("from the start to where it listens, s", result["start_s"], _START_S),
        at_most(f"MiB beside {result['tasks']:,} tasks", result["serve_mib"], _MIB),
        at_most(
            "`tasks` through the server, of it on the store", result["remote_ratio"], _REMOTE_RATIO
        ),
    ]


def _sent(settings: Settings, folder: Path, pushes: int) -> tuple[list[float], list[float]]:
    """Return the rates of lines and of `submit`, each round one after the other."""
    rows = folder / "rows.jsonl"
    parts = [b"".join(some) for some in _parts(pushes)]
    rows.write_bytes(b"".join(parts))
    lines_per_s, submit_per_s = [], []
    with serving(settings, asyncio.run(_token(settings))) as serve:
        for number in range(1, _ROUNDS + 1):
            say(f"sending {pushes:,} pushes, then submitting them: {number} of {_ROUNDS}")
            lines_per_s.append(pushes / _send(serve, parts, pushes))
            submit_per_s.append(pushes / _submit(settings, rows))
    return lines_per_s, submit_per_s


def _parts(pushes: int) -> Iterator[Sequence[bytes]]:
    for first in range(0, pushes, _A_PART):
        yield [
            b'{"recipient": "device-%d", "title": "Sale", "body": "%s"}\n' % (n, _BODY.encode())
            for n in range(first, min(first + _A_PART, pushes))
        ]


def _send(serve: Serving, parts: Sequence[bytes], pushes: int) -> float:
    """Return the seconds that a task takes from its create to its seal."""
    began_s = time.perf_counter()
    task = serve.ask("POST", "/tasks", {"level": "high"}).json["id"]
    safe = serve.ask("POST", f"/tasks/{task}/pushes", lines=parts).json["safe_line"]
    sealed = serve.ask("POST", f"/tasks/{task}/seal", {"total": pushes}).json
    took_s = time.perf_counter() - began_s
    if not safe == sealed["total"] == pushes:
        raise PushlaneError(f"of {pushes} lines {safe} are safe; the total is {sealed['total']}")
    return took_s


def _submit(settings: Settings, rows: Path) -> float:
    """Return the seconds that `submit` takes for a file of the same pushes."""
    words = ["submit", str(rows), "--level", "high", "--title", "{title}", "--body", "{body}"]
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pushlane", *words],
        env=environment(settings),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began_s


def _singles(settings: Settings) -> dict[str, float]:
    say(f"putting {_SINGLES:,} single pushes")
    token = asyncio.run(_token(settings))
    with serving(settings, token) as serve:
        serve.ask("PUT", "/formats", {"min_format": 3}, headers={"If-Match": "*"})
        serve.ask("PUT", "/streams/codes", {"level": "high"})
        per_s, took_ms = asyncio.run(_put(f"http://{serve.at}/v1/streams/codes/pushes", token))
    cuts = statistics.quantiles(took_ms, n=100)
    return {
        "single_per_s": round(per_s),
        "single_p50_ms": round(cuts[49], 1),
        "single_p99_ms": round(cuts[98], 1),
    }


async def _put(url: str, token: str) -> tuple[float, list[float]]:
    """Return how many pushes a second were durable, and the milliseconds that each took."""
    client = ClientBuilder().pool_max_idle_per_host(_AT_ONCE).build()
    numbers = iter(range(_SINGLES))
    took_ms: list[float] = []
    body = b'{"recipient": "device-1", "title": "Code", "body": "%s"}' % _BODY.encode()

    async def put() -> None:
        for number in numbers:
            began_s = time.perf_counter()
            request = client.put(f"{url}/k{number}").header("Authorization", f"Bearer {token}")
            answer = await request.body_bytes(body).build().send()
            if answer.status != 201:
                raise PushlaneError(f"a push was refused: {answer.status} {await answer.text()}")
            took_ms.append((time.perf_counter() - began_s) * 1000)

    began_s = time.perf_counter()
    await asyncio.gather(*(put() for _ in range(_AT_ONCE)))
    took_s = time.perf_counter() - began_s
    await client.close()
    return _SINGLES / took_s, took_ms


def _changed(settings: Settings) -> dict[str, float]:
    """Set a quota over and over, with the version that the change before has told."""
    say(f"setting a quota {_CHANGES:,} times")
    took_ms: list[float] = []
    with serving(settings, asyncio.run(_token(settings))) as serve:
        task = serve.ask("POST", "/tasks", {"level": "high"}).json["id"]
        told = serve.ask("GET", f"/tasks/{task}")
        for number in range(_CHANGES + _WARM):
            version = told.headers.get("etag")
            headers = {"If-Match": version} if version else {}
            began_s = time.perf_counter()
            quota = {"quota": 1 + number % 9}
            told = serve.ask("PUT", f"/tasks/{task}/quota", quota, headers=headers)
            took_ms.append((time.perf_counter() - began_s) * 1000)
    cuts = statistics.quantiles(took_ms[_WARM:], n=100)
    return {"quota_p50_ms": round(cuts[49], 1), "quota_p99_ms": round(cuts[98], 1)}


def _previewed(settings: Settings) -> dict[str, float]:
    """Preview other weights over and over, and ask why one task waits, beside many."""
    say(f"previewing {_PREVIEWS} times beside {_RUNNING:,} tasks")
    token = asyncio.run(_running(settings))
    took_ms, why_s = [], []
    with serving(settings, token) as serve:
        for number in range(_PREVIEWS):
            weights = {"weights": f"{1 + number % 9}:3:1"}
            asked = {"operation": "set-levels", "parameters": weights}
            began_s = time.perf_counter()
            moved = serve.ask("POST", "/preview", asked).json
            took_ms.append((time.perf_counter() - began_s) * 1000)
        for _ in range(_TURNS):
            began_s = time.perf_counter()
            told = serve.ask("GET", "/tasks/t77/why").json
            why_s.append(time.perf_counter() - began_s)
    if moved["untold"] or "eta_s" not in told:
        raise PushlaneError(f"ends could not be told: {moved['untold']} tasks, {told}")
    cuts = statistics.quantiles(took_ms, n=100)
    return {
        "preview_p50_ms": round(cuts[49], 1),
        "preview_p99_ms": round(cuts[98], 1),
        "why_s": round(statistics.median(why_s), 2),
    }


async def _running(settings: Settings) -> str:
    """Add tasks that run, and say of a sink that it is busy with them; return a token."""
    async with connect(settings) as backend:
        levels = tuple(Level)
        tasks = [
            Task(
                id=f"t{number}",
                level=levels[number % 3],
                lane=own_lane(f"t{number}"),
                app=f"app-{number % _APPS}",
                quota=1 + number % 5,
                state=State.RUNNING,
                total=100 + 37 * number % 9_000,
                created_at_ms=task_changes.now_ms(),
            )
            for number in range(_RUNNING)
        ]
        for start in range(0, _RUNNING, _ADDED_AT_ONCE):
            some = tasks[start : start + _ADDED_AT_ONCE]
            await asyncio.gather(*map(backend.registry.add, some))
        sink = ServedSink(
            name="default",
            slots=50,
            in_flight=50,
            delivery_s=0.01,
            delivered_per_s={"high": 5_000.0},
            tasks_per_s={"t77": 1.0},
        )
        process = Process(
            id="bench",
            kind="dispatcher",
            pid=1,
            version=VERSION,
            serves=("default",),
            served=(sink,),
        )
        await backend.presence.announce(process, _ANNOUNCED_S)
    return await _token(settings)


def _watched(settings: Settings) -> dict[str, float]:
    """Return the MiB that streams of events take on which nothing comes."""
    say(f"opening {_STREAMS} streams")
    token = asyncio.run(_token(settings))
    with serving(settings, token) as serve:
        serve.ask("GET", "/tasks")
        before_kib = resident_kib(serve.pid)
        after_kib = asyncio.run(_streamed(serve, token))
    return {"idle_streams_mib": round((after_kib - before_kib) / 1024, 1)}


async def _streamed(serve: Serving, token: str) -> int:
    host, _, port = serve.at.partition(":")
    head = f"Host: {serve.at}\r\nAuthorization: Bearer {token}\r\n\r\n"
    asked = f"GET /v1/watch/tasks HTTP/1.1\r\n{head}".encode()
    async with AsyncExitStack() as stack, asyncio.timeout(_OPEN_S):
        readers = []
        for _ in range(_STREAMS):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(asked)
            readers.append(reader)
        for reader in readers:  # the first look at the tasks is for all who are there by then
            await reader.readuntil(b"snapshot")
        return resident_kib(serve.pid)


def _starts(settings: Settings) -> list[float]:
    token = asyncio.run(_token(settings))
    took = []
    for _ in range(_ROUNDS):
        with serving(settings, token) as serve:
            took.append(serve.started_s)
    return took


def _beside(settings: Settings, tasks: int) -> dict[str, float]:
    """Return the MiB of a process that has been asked for some of many tasks, and how it lists."""
    say(f"making {tasks:,} tasks")
    token = asyncio.run(_filled(settings, tasks))
    with serving(settings, token) as serve, tempfile.NamedTemporaryFile("w") as file:
        for _ in range(_LOOKS):
            some = serve.ask("GET", "/tasks?state=running&limit=100").json
            serve.ask("GET", f"/tasks/{_first_id(some)}")
        mib = round(resident_kib(serve.pid) / 1024, 1)
        file.write(token)
        file.flush()
        remote = {"PUSHLANE_URL": f"http://{serve.at}", "PUSHLANE_TOKEN_FILE": file.name}
        ratios = [_listed_s(settings, remote) / _listed_s(settings, {}) for _ in range(_TURNS)]
    return {"serve_mib": mib, "remote_ratio": round(statistics.median(ratios), 2)}


def _listed_s(settings: Settings, remote: Mapping[str, str]) -> float:
    """Return the seconds of `tasks`, on the store or through a server."""
    given = {**os.environ, **remote} if remote else environment(settings)
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pushlane", "tasks", "--limit", "100", "--json"],
        env=given,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began_s


def _first_id(some: Any) -> str:
    tasks = some["items"] if isinstance(some, dict) else some
    return str(tasks[0]["id"])


async def _filled(settings: Settings, tasks: int) -> str:
    async with connect(settings) as backend:
        await add_tasks(
            backend, tasks - tasks // 10, State.DONE, finished_at_ms=task_changes.now_ms()
        )
        await add_tasks(backend, tasks // 10, State.RUNNING)
    return await _token(settings)


async def _token(settings: Settings) -> str:
    """Return the text of an admin's token."""
    async with connect(settings) as backend:
        wanted = CreateToken.made(name="bench", grants="admin")
        return (await do(backend, settings, Caller("bench", "cli"), wanted)).token
