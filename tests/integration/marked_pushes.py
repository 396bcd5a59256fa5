"""Marked pushes on every way through the product, failures included, and all that was said of them.

One run for a whole test module: commands in this process and as processes of their own, with what
they printed and logged, at the level DEBUG.
"""

from __future__ import annotations

import base64
import csv
import json
import logging
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pushlane.cli.logs import set_up_logs
from tests.canary import Canaries
from tests.integration.marked_providers import signing_secret
from tests.processes import Pushlane

ANSWERS = {"ok": 200, "fails": 500, "gone": 410, "refuses": 401, "busy": 429, "moved": 302}
PROCESSORS = (
    *("raises", "raises_in_thread", "says_dead", "says_retry", "says_pause", "misanswers"),
    *("loses_a_task", "batch_says", "batch_raises", "warns"),
)
FIELDS = ("recipient", "address", "body", "title", "data", "payload", "ordered", "collapse")
MODULE = """
import asyncio
import gc
import json
import logging

import pushlane
from pushlane import Outcome

logging.getLogger().setLevel(logging.DEBUG)
logging.getLogger("pushlane").setLevel(logging.DEBUG)
logging.getLogger("pushlane.test").debug("logs are at debug")


def held(push):
    return " ".join(map(str, [push.recipient, push.addresses, push.body, json.dumps(push.data)]))


async def raises(push):
    raise ValueError(held(push)) from KeyError(push.recipient)


def raises_in_thread(push):
    raise OSError(5, push.recipient, push.body)


async def says_dead(push):
    return Outcome.dead(f"no number {push.recipient}, {push.addresses['']}: {push.body}")


async def says_retry(push):
    return Outcome.throttled(f"busy with {push.recipient}: {push.title}", 0.01)


async def says_pause(push):
    return Outcome.pause(f"stopped at {push.recipient} {json.dumps(push.data)}")


async def misanswers(push):
    return push.recipient


async def fail(push):
    raise ValueError(held(push))


async def loses_a_task(push):
    lost = asyncio.create_task(fail(push))
    asyncio.get_running_loop().call_soon(lambda push: 1 / 0, push.recipient)
    await asyncio.wait([lost])
    del lost
    gc.collect()


@pushlane.batch(8)
async def batch_says(pushes):
    return [Outcome.dead(f"none of {[push.recipient for push in pushes]}")] * len(pushes)


@pushlane.batch(8)
def batch_raises(pushes):
    raise RuntimeError([held(push) for push in pushes])


async def leaky(push):
    logging.getLogger("theirs").warning("sent to %s", push.recipient)


def warns(push):
    raise UnicodeEncodeError("utf-8", held(push), 0, 1, push.recipient)


@pushlane.on("order.*")
async def by_type(push):
    raise LookupError(push.recipient)
"""


class MarkedPushes:
    """The run. `said` has what each command and process printed and logged, by its name."""

    def __init__(
        self, folder: Path, canaries: Canaries, url: str, received: list[str], tables: str
    ) -> None:
        self.canaries = canaries
        self.folder = folder
        self.store = folder / "store"
        self.made = folder / "made"
        self.made.mkdir()
        self.received = received
        self.said: dict[str, str] = {}
        self.pushlane = Pushlane(
            folder,
            {
                "broker": "embedded",
                "data_dir": str(self.store),
                "retry_first_s": "0.01",
                "retry_longest_s": "0.02",
                "max_attempts": "2",
                "receipts_key": self.canaries.value("receipts_key"),
                "address_key": base64.b64encode(self.canaries.mark.encode().ljust(32)).decode(),
                "outage_patience_s": "2",
            },
        )
        self._settings(url, tables)
        self.file("marked.py", MODULE)

    def run(self, name: str, *arguments: str | Path, fails: bool = False) -> str:
        """Run a command in this process; keep what it said, and return what it printed."""
        with logged() as lines:
            ran = self.pushlane.ran(*arguments)
        self.said[name] = ran.stdout + ran.stderr + "\n".join(lines)
        assert (ran.exit_code != 0) is fails, f"{name}: {ran.exit_code} {ran.stderr}"
        return ran.stdout.strip()

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name.replace(" ", "-")
        path.write_text(text)
        return path

    def rows(self, name: str) -> Path:
        """A CSV file of three marked rows."""
        path = self.folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*FIELDS, "type"])
            for number in range(3):
                marked = [f"{self.canaries.value(field)}{number}" for field in FIELDS]
                writer.writerow([*marked, "order.paid"])
        return path

    def submit(self, name: str, sink: str, *more: str) -> str:
        """A task of three marked pushes for this sink; its id."""
        return self.run(
            f"submit {name}",
            *("submit", self.rows(name.replace(" ", "-")), "--level", "high", "--sink", sink),
            *("--title", "{title}", "--body", "{body}", "--data", "data", "--data", "type"),
            *("--address", "address", *more),
        )

    def _settings(self, url: str, more: str) -> None:
        """Sinks with marked credentials, in each way in which they can be given."""
        mark = self.canaries.word
        secret = self.folder / "secret"
        secret.write_text(f"Bearer {mark('credentials')}")
        secret.chmod(0o644)
        host = url.removeprefix("http://")
        tables = [
            f'[sinks.{name}]\nkind = "webhook"\ntimeout_s = {0.3 if name == "slow" else 30}\n'
            f'url = "http://{mark("user")}:{mark("password")}@{host}/{name}/{mark("path")}?'
            f'key={mark("query")}#{mark("fragment")}"\n'
            f'headers = {{ X-Key = "{mark("header")}" }}\n'
            f'secrets = "{signing_secret(self.canaries)}"\n'
            + (
                f'authorization_file = "{secret}"\n'
                if name == "ok"
                else f'authorization = "{mark("authorization")}"\n'
            )
            for name in (*ANSWERS, "slow")
        ]
        tables += [
            f'[sinks.{name}]\nkind = "processor"\nfunction = "marked:{name}"\n'
            for name in (*PROCESSORS, "leaky")
        ]
        tables.append('[sinks.typed]\nkind = "on"\nmodule = "marked"\n')
        tables.append('[sinks.file]\nkind = "log"\npath = "made/file.jsonl"\n')
        (self.folder / "pushlane.toml").write_text("\n".join([*tables, more]))


@contextmanager
def provider() -> Iterator[tuple[str, list[str]]]:
    """A server that answers as the first part of a path says, `slow` never. Its URL, and what it
    got.
    """
    received: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append(f"{self.path}\n{self.headers}\n{body}")
            name = self.path.split("/")[1]
            if name == "slow":
                over.wait()
            echo = json.dumps({"error": body, "path": self.path}).encode()
            self.send_response(ANSWERS.get(name, 200), "said")
            self.send_header("Content-Length", str(len(echo)))
            with suppress(ConnectionError):  # it gave up waiting
                self.end_headers()
                self.wfile.write(echo)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            over.set()
            server.shutdown()
            thread.join()


@contextmanager
def logged() -> Iterator[list[str]]:
    """What is logged in this process at any level, as the program's own log lines have it."""
    root = logging.getLogger()
    handlers, level, ours = root.handlers, root.level, logging.getLogger("pushlane").level
    set_up_logs("text")
    formatter = root.handlers[0].formatter
    assert formatter is not None
    lines: list[str] = []
    keep = logging.Handler()
    keep.emit = lambda record: lines.append(formatter.format(record))  # type: ignore[method-assign]
    root.handlers = [keep]
    root.setLevel(logging.DEBUG)
    logging.getLogger("pushlane").setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.handlers, root.level = handlers, level
        root.setLevel(level)
        logging.getLogger("pushlane").setLevel(ours)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def scraped(port: int) -> str:
    """What is served on this port."""
    paths = [f"http://127.0.0.1:{port}/{path}" for path in ("metrics", "livez", "readyz")]
    return "".join(urllib.request.urlopen(path, timeout=30).read().decode() for path in paths)
