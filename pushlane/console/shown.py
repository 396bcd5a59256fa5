"""Makes the answers for a browser: pages, the login, a form to send again, a problem."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response

from pushlane.console.again import again_values
from pushlane.console.pages import FORM_TOKEN, NONCE, Ask, Page, elsewhere, may
from pushlane.console.sessions import Kept, Login
from pushlane.core.errors import PushlaneError
from pushlane.core.task import now_ms
from pushlane.door.problems import refusal_of
from pushlane.operations.access import NewTokenView
from pushlane.operations.dead import RetryDead
from pushlane.operations.session import Caller

PREFIX = "/console"
DONE_COOKIE = "pushlane-done"
THEME_COOKIE = "pushlane-theme"

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_THEMES = ("light", "dark")
_ASKED_FOR = {
    "run-rule": "The run is asked for. It begins once pushlane rules serve takes it up.",
}
"""What to say of operations that only ask for something."""


class Reader(NamedTuple):
    """Somebody who looks: the session, its caller, and the nonce and form token of its pages."""

    login: Login
    caller: Caller
    nonce: str
    form_token: str

    def own(self, html: bytes) -> bytes:
        """Put what is the reader's own into what all are sent who see the same."""
        mine = html.replace(NONCE.encode(), self.nonce.encode())
        return mine.replace(FORM_TOKEN.encode(), self.form_token.encode())


def path_of(request: Request) -> str:
    """Return the path as it was asked for, with what is quoted in it."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return raw.decode("ascii", "replace")


def root_of(request: Request, within: str = "") -> str:
    """Return how the root of the console is written, seen from where a request was made.

    `within` is what comes before the page's own address in this one, as in that of a stream.
    """
    depth = path_of(request).removeprefix(f"{PREFIX}{within}/").count("/")
    return "../" * depth or "./"


def _root_of_page(request: Request) -> str:
    """Return the same, seen from the page into which htmx puts what it asks for."""
    there = urlsplit(request.headers.get("hx-current-url", "")).path
    _, found, within = there.rpartition(f"{PREFIX}/")
    return ("../" * within.count("/") or "./") if found else root_of(request)


class Shown:
    """Renders pages."""

    def __init__(
        self,
        templates: Environment,
        pages: Sequence[Page],
        labels: Mapping[str, str],
        *,
        has_issuer: bool = False,
    ) -> None:
        self._templates = templates
        self._labels = labels
        self._has_issuer = has_issuer
        self._pages = pages

    def nav(self, caller: Caller) -> list[Page]:
        """Return the pages that somebody is led to: those with something for them."""
        return [page for page in self._pages if may(caller, page.shows)]

    def page(
        self, request: Request, page: Page, reader: Reader, ask: Ask, values: Mapping[str, Any]
    ) -> Response:
        """Show a page. htmx is sent its changing part alone."""
        if request.headers.get("hx-request") == "true":
            html = self.live(page, _root_of_page(request), values)
            return _fragment(reader, html)
        query = f"?{request.url.query}" if page.query and request.url.query else ""
        stream = f"{root_of(request)}live{path_of(request).removeprefix(PREFIX)}{query}"
        more = {
            "title": values.get("title", page.title),
            "here": page,
            "stream": stream if page.is_live else "",
            "at_ms": now_ms(),
            "back": f"{path_of(request).removeprefix(f'{PREFIX}/')}{query}",
            "elsewhere": [elsewhere(one) for one in ask.asked],
        }
        return self._whole(request, page.template, {**values, **more}, reader)

    def live(self, page: Page, root: str, values: Mapping[str, Any]) -> bytes:
        """Return the changing part of a page, as it is for all who see the same."""
        template = self._templates.get_template(page.template)
        context = template.new_context({**values, "root": root})
        return "".join(template.blocks["live"](context)).encode()

    def login(
        self, request: Request, values: Mapping[str, str], error: PushlaneError | None = None
    ) -> Response:
        """Ask for a token. `values` has where to go on (`next`), or a form that is `kept`."""
        shown = {
            "title": "Log in",
            "next": values.get("next", ""),
            "kept": values.get("kept", ""),
            "has_issuer": self._has_issuer,
            "error": str(error) if error else "",
        }
        return self._whole(request, "login.html", shown, None, error)

    def again(
        self,
        request: Request,
        form: Kept,
        reader: Reader,
        error: PushlaneError | None = None,
        lost: str = "",
    ) -> Response:
        """Show a form that was not done, with what was typed into it; `lost` is what it needs."""
        told = again_values(form, error, self._labels)
        shown = {"title": "Not done yet", "lost": lost, **told}
        return self._whole(request, "again.html", shown, reader, error)

    def made(self, request: Request, token: NewTokenView, reader: Reader) -> Response:
        """Show the text of a token, this once: it is in no other answer."""
        shown = {"title": f"Token of {token.name}", "token": token}
        return self._whole(request, "made.html", shown, reader)

    def problem(
        self,
        request: Request,
        error: PushlaneError,
        reader: Reader | None,
        there: tuple[str, str] = ("", ""),
    ) -> Response:
        """Say what is wrong; `there` leads on to a page, by its address and a text."""
        name = refusal_of(error).problem.title
        shown = {"title": name, "error": str(error), "there": there[0], "there_title": there[1]}
        return self._whole(request, "problem.html", shown, reader, error)

    def _whole(
        self,
        request: Request,
        template: str,
        values: Mapping[str, Any],
        reader: Reader | None,
        error: PushlaneError | None = None,
    ) -> Response:
        theme = request.cookies.get(THEME_COOKIE, "")
        common = {
            "root": root_of(request),
            "here": None,
            "stream": "",
            "elsewhere": (),
            "theme": theme if theme in _THEMES else "",
            "caller": reader.caller if reader else None,
            "nav": self.nav(reader.caller) if reader else (),
            "done": _done_text(request) if reader else "",
        }
        html = self._templates.get_template(template).render({**common, **values}).encode()
        refusal = refusal_of(error) if error else None
        status = refusal.problem.status if refusal else 200
        headers = _HEADERS | {"Content-Security-Policy": _policy()}
        if refusal and (wait := refusal.headers.get("Retry-After")):
            headers["Retry-After"] = wait
        answer = Response(reader.own(html) if reader else html, status, headers, "text/html")
        if common["done"]:
            answer.delete_cookie(DONE_COOKIE)
        return answer


def _done_text(request: Request) -> str:
    """Return what to say of the operation that led here; empty for none."""
    word, _, count = request.cookies.get(DONE_COOKIE, "").partition(":")
    if word == RetryDead.word() and count.isdecimal():
        pushes = "1 dead push is" if count == "1" else f"{int(count):,} dead pushes are"
        return f"{pushes} sent again: by a new task, which has the old one's name and (retried)."
    return _ASKED_FOR.get(word, f"{word} is done.") if word else ""


def _fragment(reader: Reader, html: bytes) -> Response:
    """Return a part for htmx, under a nonce of its own, which hx-csp makes that of the page."""
    own = reader._replace(nonce=secrets.token_urlsafe(24))
    headers = _HEADERS | {"Content-Security-Policy": _policy(own.nonce)}
    return Response(own.own(html), 200, headers, "text/html")


def _policy(nonce: str = "") -> str:
    more = {"script-src": f"'self' 'nonce-{nonce}'"} if nonce else {}
    return "; ".join(f"{name} {value}" for name, value in (_POLICY | more).items())
