"""Measures how long a browser takes to paint a page of the console with its content.

That is Chromium's largest paint: pages come whole from the server, so that nothing of use is
painted later. The browser has kept nothing, and the server has looked at nothing before.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from bench.figures import say

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_WAIT_MS = 60_000
_PAINTED = """() => new Promise((resolve) => new PerformanceObserver((list) =>
  resolve(Math.max(...list.getEntries().map((one) => one.startTime)))
).observe({type: "largest-contentful-paint", buffered: true}))"""


def painted_ms(url: str, cookie: str) -> float | None:
    """Return the ms from asking for a page until it is painted; None where no browser is there."""
    program = next(filter(None, map(shutil.which, _CHROMIUMS)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        say("no browser: its paint is not measured")
        return None
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        _painted(browser, "about:blank", cookie, url)  # the browser itself is warm
        found = _painted(browser, url, cookie, url)
        browser.close()
    return round(found, 1)


def _painted(browser: Browser, there: str, cookie: str, url: str) -> float:
    name, _, value = cookie.partition("=")
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_cookies([{"name": name, "value": value, "url": url}])
    page = context.new_page()
    page.goto(there, timeout=_WAIT_MS)
    found: float = page.evaluate(_PAINTED) if there == url else 0.0
    context.close()
    return found
