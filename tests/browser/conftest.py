"""A real browser, and a server of the console for each test.

The browser is Debian's Chromium, one for all tests; each has a context of its own. Without it, or
without the extra `browser`, a test is skipped; in CI (`CI` is set) it fails. A page that reports an
error, or something that its policy forbids, fails its test.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from pushlane import Settings
from pushlane.backends.backend import Backend, connect
from pushlane.console.app import Console
from pushlane.console.issued import CodeFlow
from pushlane.console.sessions import sessions
from pushlane.door.app import Door, build
from pushlane.door.server import Listening, Place, listening
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.operation import Operation
from tests.browser.issuer import CLIENT, own_issuer
from tests.door.asking import ADMIN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

Result = TypeVar("Result")

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_WAIT_MS = 20_000
_NOTE_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The browser. Its driver leaves a loop running in this thread, so it goes with the package."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _absent("the extra `browser` is not installed: make browser")
    program = next(filter(None, map(shutil.which, _CHROMIUMS)), None)
    if program is None:
        _absent("there is no Chromium: apt-get install chromium")
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


def _absent(why: str) -> Any:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


class _Stripping:
    """Takes a prefix away from what is asked for, as a proxy does; without it nothing is there."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(f"{self._prefix}/"), scope["path"]
            left = {name: scope[name][len(self._prefix) :] for name in ("path", "raw_path")}
            scope = {**scope, **left}
        await self._app(scope, receive, send)


class AtUrl(Protocol):
    """Somewhere a console is."""

    @property
    def url(self) -> str: ...


class Served:
    """A server of the console on a thread, with a store that outlives it."""

    def __init__(self, settings: Settings, prefix: str = "") -> None:
        self._settings = settings
        self._prefix = prefix
        self._port = 0
        self.key = sessions(None)
        self._thread: threading.Thread | None = None
        self.console: Console
        self._backend: Backend
        self._loop: asyncio.AbstractEventLoop
        self._server: Listening

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._prefix}/console/"

    def start(self) -> None:
        """Serve, at the address of before."""
        is_ready: Future[None] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(is_ready),))
        self._thread.start()
        is_ready.result(30)

    async def _serve(self, is_ready: Future[None]) -> None:
        async with connect(self._settings) as backend:
            door = Door(backend, self._settings)
            self._backend, self._loop = backend, asyncio.get_running_loop()
            flow = CodeFlow(door.issuer, self._settings) if door.issuer else None
            self.console = Console(door, self.key, flow)
            app: Any = _Stripping(build(door, self.console.routes()), self._prefix)
            self._server = listening(app, Place("127.0.0.1", self._port))
            self._port = self._server.at.getsockname()[1]
            self._stopping = door.stopping
            is_ready.set_result(None)
            await self._server.run()
            await self.console.close()
            await door.close()

    def stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._server.stop()
            self._thread.join()
            self._thread = None

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation, as somebody else would."""
        return self.work(lambda backend: do(backend, self._settings, ADMIN, operation))

    def work(self, on_backend: Callable[[Backend], Coroutine[Any, Any, Result]]) -> Result:
        """Do some work on its backend, as another process would."""
        return asyncio.run_coroutine_threadsafe(on_backend(self._backend), self._loop).result(30)

    def token(self, role: str = "admin", name: str = "me") -> str:
        return self.do(CreateToken.made(name=name, grants=role)).token


@pytest.fixture
def served(settings: Settings) -> Iterator[Served]:
    found = Served(settings)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def second_served(served: Served, settings: Settings) -> Iterator[Served]:
    """Another server of the same store, with the same key of sessions."""
    found = Served(settings)
    found.key = served.key
    found.start()
    yield found
    found.stop()


@pytest.fixture
def served_under_prefix(settings: Settings) -> Iterator[Served]:
    """A server behind a proxy that gives it a prefix."""
    found = Served(settings, "/push")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def served_with_issuer(settings: Settings) -> Iterator[Served]:
    """A server at which people log in by an issuer, too."""
    with own_issuer() as issuer:
        found = Served(
            settings.but(
                oidc_issuer=issuer.url,
                oidc_audience=CLIENT,
                oidc_client_id=CLIENT,
                oidc_roles="ops=admin",
            )
        )
        found.start()
        yield found
        found.stop()


class Visitor:
    """Somebody at a browser of their own."""

    def __init__(self, context: BrowserContext, served: AtUrl) -> None:
        self._served = served
        self.context = context
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.page.set_default_timeout(_WAIT_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, dialog: Any) -> None:
        self.wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def goes_to(self, path: str) -> None:
        self.page.goto(self._served.url + path)

    def logs_in(self, token: str, path: str = "processes") -> None:
        """Log in by keyboard, and wait until the page is live."""
        self.goes_to(path)
        self.types(token)
        self.page.wait_for_url(self._served.url + path)
        self.sees_state("live")

    def types(self, token: str) -> None:
        """Type a token where the login asks for one."""
        self.page.locator("#token:focus").wait_for()
        self.page.keyboard.type(token)
        self.page.keyboard.press("Enter")

    def sees_state(self, name: str) -> str:
        """Wait until the stream of the page is so; return what is said of it."""
        self.page.wait_for_selector(f"#stream-state[data-state={name}]")
        return self.page.inner_text("#stream-state")

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def violations(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.violations")
        return found


@pytest.fixture
def visitor(chromium: Browser) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors of a server; `colours`, `width` and `zone` are those of their browser."""
    here: list[Visitor] = []

    def come(
        served: AtUrl, colours: Any = "light", width: int = 1280, zone: str = "UTC"
    ) -> Visitor:
        context = chromium.new_context(
            color_scheme=colours,
            viewport={"width": width, "height": 800},
            timezone_id=zone,
            locale="en-GB",
            reduced_motion="reduce",
        )
        context.add_init_script(_NOTE_VIOLATIONS)
        here.append(Visitor(context, served))
        return here[-1]

    yield come
    for one in here:
        violations, wrong = one.violations(), one.wrong
        one.context.close()
        assert (violations, wrong) == ([], [])


@pytest.fixture(scope="session")
def axe() -> str:
    return (Path(__file__).parent / "vendor/axe.min.js").read_text()
