"""`python -m scripts.console_pictures` makes the pictures in docs/console: pages on a live backlog.

Tasks of three levels and apps share a sink of four slots; one app is held by a limit, one task is
paused and one starts later. It needs the extra `browser` and a Chromium, and takes a minute.
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

from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent.parent / "docs" / "console"
MOST_BYTES = 150 * 1024
_TASKS = (
    ("flash-sale", "shop", "high", 30_000, ()),
    ("order-paid", "orders", "medium", 20_000, ()),
    ("order-shipped", "orders", "medium", 8_000, ("--quota", "2")),
    ("weekly-digest", "press", "medium", 12_000, ("--paused",)),
    ("newsletter", "press", "low", 60_000, ()),
    ("evening-news", "press", "low", 15_000, ("--delay", "3h")),
)
_SINK = "import asyncio\n\n\nasync def send(push):\n    await asyncio.sleep(0.02)\n"
_READY = re.compile(r"serving at (http://[\d.:]+)")
_START_S, _SEEN_S = 30.0, 20.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pushlane-picture-") as folder:
        here = Path(folder)
        (here / "slow.py").write_text(_SINK)
        env = {**os.environ, "PUSHLANE_DATA_DIR": str(here / "data"), "PYTHONPATH": folder}
        for name, app, level, pushes, more in _TASKS:
            rows = here / f"{name}.csv"
            rows.write_text("recipient\n" + "\n".join(f"{name}-{n}" for n in range(pushes)))
            asked = ("--name", name, "--app", app, "--level", level, "--title", "Hi", *more)
            _run(env, "submit", str(rows), *asked)
        _run(env, "limit", "app/shop", "--rate", "50/s")
        made = _run(env, "access", "create", "dana", "--role", "operator", "--json")
        token = json.loads(made)["token"]
        with (
            _started(env, "dispatch", "--sink", "slow:send", "--slots", "4"),
            _started(env, "serve", "--bind", "127.0.0.1:0") as said,
        ):
            _take(f"{_url(said)}/console", token)
    return 0


def _take(url: str, token: str) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(timezone_id="UTC")
        page.goto(f"{url}/login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("is held by its limit").wait_for()
        page.wait_for_timeout(_SEEN_S * 1000)  # the lines of the last hour have to begin
        _show(page, "now", 1190)
        page.goto(f"{url}/tasks")
        _show(page, "tasks", 740)
        page.get_by_role("link", name="order-paid", exact=True).click()
        page.wait_for_url("**/tasks/*")
        _show(page, "task", 1000)
        task = page.url.rpartition("/")[2]
        page.goto(f"{url}/preview?operation=promote-task&task={task}&back=tasks")
        _show(page, "preview", 560, is_live=False)
        browser.close()


def _show(page: Page, name: str, height: int, *, is_live: bool = True) -> None:
    """Take the picture of a page. Raises SystemExit for one that is too large."""
    picture = PICTURES / f"{name}.png"
    page.set_viewport_size({"width": 1280, "height": height})
    if is_live:
        page.wait_for_selector("#stream-state[data-state=live]")
    page.screenshot(path=picture)
    if picture.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{picture} has {picture.stat().st_size:,} bytes, over {MOST_BYTES:,}")


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
