"""Times the console and the view of now beside very many tasks, and what both take.

`pushlane serve` is a process of its own beside 100,000 tasks, of which 1,000 run, of three levels
and fifty apps. Its first page is asked for, cold; a name is changed over and over, and the time
until an open page shows it is taken; words are searched for. The processor time of `serve` is read
over some seconds while outcomes of all tasks that run are recorded: with nobody there, with one
page open, with fifty of it, and with fifty that each see another list. Meanwhile `pushlane top`
runs in a terminal of its own, on the backend itself and then through the server. A browser asks for
the first page of another `serve`. At last a dispatcher drains a backlog with nobody there and with
fifty pages open, in pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from bench.backends import backend_settings
from bench.console_pairs import rates_in_pairs
from bench.figures import Figure, at_least, at_most, say
from bench.paint import painted_ms
from bench.resident import resident_kib
from bench.serving import Serving, serving
from bench.terminal import top_open
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import PushlaneError
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task
from pushlane.model.presence import Process, ServedSink
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller
from pushlane.settings import Settings
from pushlane.version import VERSION

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_RUNNING, _APPS = 1_000, 50
_TOTAL = 1_000_000
_SHOWN_FIRST = 1_000  # the quota of the task whose name is changed
_ADDED_AT_ONCE, _ANNOUNCED_S = 500, 600.0
_CHANGES, _SEARCHES, _WARM = 20, 100, 5
_OPEN = 50
_OVER_S, _SETTLE_S, _RECORD_S = 10.0, 3.0, 0.5
_ANSWER_S = 20.0
_FIRST_MS, _UPDATE_MS, _SEARCH_MS, _PAGE_KIB = 1_000.0, 1_000.0, 100.0, 200.0
_VIEW, _OF_NOW, _OF_FILTERS, _MIB = 0.05, 0.05, 0.20, 192.0
_TOP = 0.03
_KEPT = 0.99
_NOW = "/console/live/now"
_LIST = "/console/live/tasks"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_ASSET = re.compile(rb'(?:src|href)="([^"]*static/[^"]+)"')


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--tasks", type=int, default=100_000, help="in all, 1,000 of them running")
    parser.add_argument(
        "--pairs", type=int, default=5, help="pairs of runs with and without pages (5)"
    )
    parser.add_argument("--pushes", type=int, default=200_000, help="pushes of each of these runs")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with backend_settings(options.broker) as settings:
        say(f"making {options.tasks:,} tasks")
        token = asyncio.run(_filled(settings, options.tasks))
        with serving(settings, token) as serve:
            measured = asyncio.run(_measured(settings, serve, _cookie(serve, token), options.tasks))
            measured |= _top_measured(settings, serve, token)
        with serving(settings, token) as serve:
            say("the first page in a browser")
            paint_ms = painted_ms(f"http://{serve.at}/console/now", _cookie(serve, token))
        if paint_ms is not None:
            measured["paint_ms"] = paint_ms
        if options.pairs:
            say("a dispatcher with and without open pages")
            measured |= rates_in_pairs(settings, _watching, options.pairs, options.pushes)
        return {"broker": options.broker, "tasks": options.tasks, "running": _RUNNING, **measured}


def figures(result: dict[str, Any]) -> list[Figure]:
    found = [
        at_most("the first page, cold, ms", result["first_ms"], _FIRST_MS),
        at_most("a change until an open page shows it, ms (99 of 100)", *_p99(result, "update")),
        at_most("a search, ms (99 of 100)", *_p99(result, "search")),
        at_most("one for a word that all have, ms", *_p99(result, "search_common")),
        at_most("the page with all it needs, packed, KiB", result["page_kib"], _PAGE_KIB),
        at_most("one open page, of a core", result["view_cpu"], _VIEW),
        at_most(f"{_OPEN - 1} more of it, of a core", result["same_cpu"], _OF_NOW),
        at_most(f"{_OPEN} pages, each another, of a core", result["other_cpu"], _OF_FILTERS),
        at_most("resident, MiB", result["serve_mib"], _MIB),
        at_most("`top` on the backend itself, of a core", result["top_cpu"], _TOP),
        at_most("`top` through the server, of a core", result["top_of_server_cpu"], _TOP),
    ]

    if "paint_ms" in result:
        found.insert(1, at_most("the same painted by a browser, ms", result["paint_ms"], _FIRST_MS))
    if "rate_kept" in result:
        kept, cost = result["rate_kept"], f"{result['push_cpu']:g}"
        found.append(at_least(f"a dispatcher's rate beside {_OPEN} pages, of alone", kept, _KEPT))
        found.append(Figure("what a push costs it beside them, of alone", cost))
    return found


def _p99(result: dict[str, Any], what: str) -> tuple[float, float]:
    goal = {"update": _UPDATE_MS, "search": _SEARCH_MS, "search_common": _SEARCH_MS}[what]
    return result[f"{what}_p99_ms"], goal


async def _measured(
    settings: Settings, serve: Serving, cookie: str, tasks: int
) -> dict[str, float]:
    began_s = time.perf_counter()
    page = _get(serve, "/console/now", cookie)
    first_ms = (time.perf_counter() - began_s) * 1000
    async with connect(settings) as backend:
        say("changing a name while a page is open")
        update_ms = await _updates(backend, serve, cookie)
        say("searching")
        search_ms = await asyncio.to_thread(_searches, serve, "campaign {} ", 1)
        others = tasks - 1  # than the one whose name was changed
        common_ms = await asyncio.to_thread(_searches, serve, "campaign", others)
        filters = [f"{_LIST}?{urlencode({'app': f'app-{n}'})}" for n in range(_OPEN)]
        idle = await _cpu(backend, serve, cookie, [])
        one = await _cpu(backend, serve, cookie, [_NOW])
        same = await _cpu(backend, serve, cookie, [_NOW] * _OPEN)
        other = await _cpu(backend, serve, cookie, filters)
    return {
        "first_ms": round(first_ms, 1),
        "page_kib": round(_weight(serve, page, cookie) / 1024, 1),
        "update_p50_ms": round(statistics.median(update_ms), 1),
        "update_p99_ms": round(max(update_ms), 1),
        "search_p50_ms": round(statistics.median(search_ms), 1),
        "search_p99_ms": round(statistics.quantiles(search_ms, n=100)[98], 1),
        "search_common_p50_ms": round(statistics.median(common_ms), 1),
        "search_common_p99_ms": round(statistics.quantiles(common_ms, n=100)[98], 1),
        "idle_cpu": round(idle, 3),
        "view_cpu": round(one - idle, 3),
        "same_cpu": round(same - one, 3),
        "other_cpu": round(other - idle, 3),
        "serve_mib": round(resident_kib(serve.pid) / 1024, 1),
    }


async def _updates(backend: Backend, serve: Serving, cookie: str) -> list[float]:
    """Return how long it takes, in ms, until an open page shows a new name of a task."""
    took = []
    async with _opened(serve, _NOW, cookie) as reader:
        await reader.readuntil(b"running")
        for number in range(_CHANGES):
            name = f"name-{number}-of-{_CHANGES}"
            began_s = time.perf_counter()
            await backend.registry.change("t0", partial(replace, name=name))
            async with asyncio.timeout(_ANSWER_S):
                await _until(reader, name.encode())
            took.append((time.perf_counter() - began_s) * 1000)
    return took


async def _until(reader: asyncio.StreamReader, text: bytes) -> None:
    """Read on until a text has come."""
    kept = b""
    while text not in kept:
        more = await reader.read(65_536)
        if not more:
            raise PushlaneError("the stream of the page has ended")
        kept = kept[-len(text) :] + more


def _searches(serve: Serving, words: str, in_all: int) -> list[float]:
    """Return how long a search for words takes that so many tasks have, in ms."""
    took = []
    for number in range(_SEARCHES + _WARM):
        began_s = time.perf_counter()
        find = words.format(_RUNNING + number)
        asked = urlencode({"find": find, "state": "any", "limit": 50})
        found = serve.ask("GET", f"/find/tasks?{asked}").json
        took.append((time.perf_counter() - began_s) * 1000)
    if found["in_all"] != in_all:
        raise PushlaneError(f"a search found {found['in_all']:,} tasks and not {in_all:,}")
    return took[_WARM:]


async def _cpu(backend: Backend, serve: Serving, cookie: str, paths: Sequence[str]) -> float:
    """Return what `serve` takes of a core while these pages are open and pushes end."""
    say(f"{len(paths)} open pages")
    async with _read(serve, cookie, paths):
        return await _of_a_core(backend, serve.pid)


@asynccontextmanager
async def _read(serve: Serving, cookie: str, paths: Sequence[str]) -> AsyncIterator[None]:
    """Pages that are open meanwhile, and whose streams are read."""
    async with AsyncExitStack() as stack:
        reading = [
            asyncio.create_task(_drained(await stack.enter_async_context(_opened(serve, *one))))
            for one in ((path, cookie) for path in paths)
        ]
        try:
            yield
        finally:
            for one in reading:
                one.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


@contextmanager
def _watching(serve: Serving, token: str) -> Iterator[None]:
    """Fifty pages that are open meanwhile, read by a thread."""
    cookie = _cookie(serve, token)
    is_open, over = threading.Event(), threading.Event()

    async def watch() -> None:
        async with _read(serve, cookie, [_NOW] * _OPEN):
            is_open.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(watch(),))
    thread.start()
    try:
        if not is_open.wait(_ANSWER_S):
            raise PushlaneError("the pages did not open")
        yield
    finally:
        over.set()
        thread.join()


def _top_measured(settings: Settings, serve: Serving, token: str) -> dict[str, float]:
    """Return what `top` takes of a core, on the backend itself and through the server."""
    with tempfile.TemporaryDirectory(prefix="pushlane-bench-") as folder:
        file = Path(folder, "token")
        file.touch(0o600)
        file.write_text(token)
        through = {"PUSHLANE_URL": f"http://{serve.at}", "PUSHLANE_TOKEN_FILE": str(file)}
        return {
            "top_cpu": _top_cpu(settings, settings.as_environment()),
            "top_of_server_cpu": _top_cpu(settings, through),
        }


def _top_cpu(settings: Settings, env: Mapping[str, str]) -> float:
    say("`top` in a terminal")
    with top_open(env) as pid:
        return round(asyncio.run(_beside_top(settings, pid)), 3)


async def _beside_top(settings: Settings, pid: int) -> float:
    async with connect(settings) as backend:
        return await _of_a_core(backend, pid)


async def _of_a_core(backend: Backend, pid: int) -> float:
    """Return what a process takes of a core while a push of each task ends twice a second."""
    recording = asyncio.create_task(_recorded(backend))
    try:
        await asyncio.sleep(_SETTLE_S)
        began, began_s = _cpu_s(pid), time.perf_counter()
        await asyncio.sleep(_OVER_S)
        return (_cpu_s(pid) - began) / (time.perf_counter() - began_s)
    finally:
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)


async def _recorded(backend: Backend) -> None:
    """Let a push of each task that runs end, twice a second."""
    [before] = await backend.registry.progress(["t0"])
    seq = before.finished
    while True:
        seq += 1
        some = [Finished(f"t{number}", Kind.DELIVERED, [seq]) for number in range(_RUNNING)]
        await backend.registry.record(some)
        await asyncio.sleep(_RECORD_S)


async def _drained(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _opened(serve: Serving, path: str, cookie: str) -> AsyncIterator[asyncio.StreamReader]:
    """An open stream of a page."""
    host, _, port = serve.at.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {serve.at}\r\nCookie: {cookie}\r\n\r\n".encode()
        )
        told = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in told.split(b"\r\n")[0]:
            raise PushlaneError(f"the stream of {path} was refused: {told[:200]!r}")
        yield reader
    finally:
        writer.close()


def _cookie(serve: Serving, token: str) -> str:
    """Log in; return the cookie of the session."""
    connection = HTTPConnection(serve.at, timeout=_ANSWER_S)
    connection.request("POST", "/console/login", urlencode({"token": token}), _FORM)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return (answer.getheader("set-cookie") or "").split(";")[0]


def _get(serve: Serving, path: str, cookie: str) -> bytes:
    connection = HTTPConnection(serve.at, timeout=_ANSWER_S)
    connection.request("GET", path, headers={"Cookie": cookie})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise PushlaneError(f"GET {path} was answered {answer.status}")
    return body


def _weight(serve: Serving, page: bytes, cookie: str) -> int:
    """Return the bytes of a page and of all that it needs, as they are packed on their way."""
    assets = {f"/console/{one.decode().removeprefix('./')}" for one in _ASSET.findall(page)}
    parts = [page, *(_get(serve, one, cookie) for one in sorted(assets))]
    return sum(len(gzip.compress(one)) for one in parts)


async def _filled(settings: Settings, count: int) -> str:
    """Add tasks, let a process say that it is busy with those that run; return a token."""
    levels = tuple(Level)
    async with connect(settings) as backend:
        for start in range(0, count, _ADDED_AT_ONCE):
            some = range(start, min(count, start + _ADDED_AT_ONCE))
            await asyncio.gather(*(backend.registry.add(_task(n, levels)) for n in some))
        sink = ServedSink(
            name="default",
            slots=50,
            in_flight=50,
            delivery_s=0.025,
            delivered_per_s={"high": 2_000.0},
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
        wanted = CreateToken.made(name="bench", grants="admin")
        return (await do(backend, settings, Caller("bench", "cli"), wanted)).token


def _task(number: int, levels: Sequence[Level]) -> Task:
    is_running = number < _RUNNING
    at_ms = 1_700_000_000_000 + number
    return Task(
        id=f"t{number}",
        level=levels[number % 3],
        lane=own_lane(f"t{number}"),
        app=f"app-{number % _APPS}",
        name=f"campaign {number} of spring",
        quota=1 + number % 5 if number else _SHOWN_FIRST,
        state=State.RUNNING if is_running else State.DONE,
        total=_TOTAL + number,
        created_at_ms=at_ms,
        finished_at_ms=0 if is_running else at_ms + 60_000,
    )
