"""`python -m scripts.console_picture` makes docs/console.png: the page Now on a live backlog.

Three tasks of three levels and apps share a sink of four slots; one app is held by a limit. It
needs the extra `browser` and a Chromium, and takes half a minute.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

_PICTURE = Path(__file__).parent.parent / "docs" / "console.png"
_TASKS = (
    ("flash-sale", "shop", "high", 30_000),
    ("order-paid", "orders", "medium", 20_000),
    ("newsletter", "press", "low", 60_000),
)
_SINK = "import asyncio\n\n\nasync def send(push):\n    await asyncio.sleep(0.02)\n"
_READY = re.compile(r"serving at (http://[\d.:]+)")
_START_S, _SEEN_S = 30.0, 20.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pushlane-picture-") as folder:
        here = Path(folder)
        (here / "slow.py").write_text(_SINK)
        env = {**os.environ, "PUSHLANE_DATA_DIR": str(here / "data"), "PYTHONPATH": folder}
        for name, app, level, pushes in _TASKS:
            rows = here / f"{name}.csv"
            rows.write_text("recipient\n" + "\n".join(f"{name}-{n}" for n in range(pushes)))
            _run(
                env,
                "submit",
                str(rows),
                "--name",
                name,
                "--app",
                app,
                "--level",
                level,
                "--title",
                "Hi",
            )
        _run(env, "limit", "app/shop", "--rate", "50/s")
        made = _run(env, "access", "create", "dana", "--role", "operator", "--json")
        token = json.loads(made)["token"]
        with (
            _started(env, "dispatch", "--sink", "slow:send", "--slots", "4"),
            _started(env, "serve", "--bind", "127.0.0.1:0") as said,
        ):
            _take(_url(said), token)
    return 0


def _take(url: str, token: str) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1000}, timezone_id="UTC")
        page.goto(f"{url}/console/login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("is held by its limit").wait_for()
        page.wait_for_timeout(_SEEN_S * 1000)  # the lines of the last hour have to begin
        page.screenshot(path=_PICTURE, full_page=True)
        browser.close()


def _run(env: dict[str, str], *words: str) -> str:
    asked = [sys.executable, "-m", "pushlane", *words]
    return subprocess.run(asked, env=env, check=True, capture_output=True, text=True).stdout


@contextmanager
def _started(env: dict[str, str], *words: str) -> Iterator[Path]:
    """Run a command meanwhile; give the file of what it says."""
    with tempfile.NamedTemporaryFile("w") as said:
        asked = [sys.executable, "-m", "pushlane", *words]
        process = subprocess.Popen(asked, env=env, stdout=said, stderr=said)
        try:
            yield Path(said.name)
        finally:
            process.terminate()
            process.wait()


def _url(said: Path) -> str:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        if found := _READY.search(said.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"serve did not start; it said: {said.read_text()}")


if __name__ == "__main__":
    sys.exit(main())
