"""The routes of the console: login, pages, their streams, and forms that do an operation.

All addresses within a page are relative, so that it works under whatever prefix a proxy puts before
it. Whatever is done is an operation, with the rights of the token that the session was begun with.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pushlane.console.access import ACCESS
from pushlane.console.alerts import ALERTS, FIGURES
from pushlane.console.assets import Assets
from pushlane.console.audit import AUDIT
from pushlane.console.batches import COUNTED, page_of
from pushlane.console.issued import CodeFlow
from pushlane.console.life import LIFE
from pushlane.console.live import Live
from pushlane.console.now import NOW
from pushlane.console.pages import Ask, Page, environment, redirect
from pushlane.console.preview import PREVIEW
from pushlane.console.processes import PROCESSES
from pushlane.console.report import REPORT, SHARES
from pushlane.console.rules import RULE, RULES
from pushlane.console.sessions import LOGIN_S, SESSION_S, Kept, Login, Sessions, new_login
from pushlane.console.shown import DONE_COOKIE, PREFIX, Reader, Shown, path_of, root_of
from pushlane.console.sinks import SINKS
from pushlane.console.submit import DRAFT, LABELS, SUBMIT, Submits
from pushlane.console.task import DEAD, PUSH, RECIPIENT, RESULTS, TASK, WHY
from pushlane.console.tasks import TASKS
from pushlane.core.errors import BadInput, PushlaneError, UserError
from pushlane.door.app import Door
from pushlane.door.batches import Batches
from pushlane.door.drafts import Drafts, KeptElsewhere
from pushlane.door.events import EventStream
from pushlane.door.requests import MOST_BYTES, operation_of_form, tags_of
from pushlane.door.single import body_of
from pushlane.operations.access import NewTokenView
from pushlane.operations.dead import RetryDead
from pushlane.operations.doing import refuse_role
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.previewing import AppliedView
from pushlane.operations.session import Beside
from pushlane.util.errors import NotAllowed, NotFound, Unauthorized

PAGES: tuple[Page, ...] = (NOW, TASKS, SUBMIT, SINKS, ALERTS, RULES, PUSH, PROCESSES, AUDIT, ACCESS)
"""The pages of the navigation, in its order."""

INNER: tuple[Page, ...] = (
    TASK,
    WHY,
    LIFE,
    RESULTS,
    REPORT,
    SHARES,
    DEAD,
    PREVIEW,
    COUNTED,
    FIGURES,
    RULE,
    DRAFT,
)
"""Pages that others lead to, and have as parts."""

_COOKIE = "pushlane"
_LOGIN_COOKIE = "pushlane-login"
_FORM = "application/x-www-form-urlencoded"
_DATE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")
_OF_DRAFT = re.compile(r"submit/([^/]+)/")
_MOST_KEPT_BYTES = 64 * 1024
_HOP = "hop"
_MOST_HOPS = 15  # browsers follow 20
_BY_WORD = {kind.word(): kind for kind in OPERATIONS}

Fields = ImmutableMultiDict[str, str]
Endpoint = Callable[[Request], Awaitable[Response]]
Acting = Callable[[Request, Reader, Fields], Awaitable[Response]]


class Console:
    """The console of one process."""

    def __init__(self, door: Door, sessions: Sessions, flow: CodeFlow | None = None) -> None:
        self._door = door
        self._flow = flow
        self._sessions = sessions
        self._assets = Assets()
        self._shown = Shown(environment(self._assets), PAGES, LABELS, has_issuer=flow is not None)
        self._batches = Batches(door)
        self.drafts = Drafts(door)
        self._submits = Submits(self.drafts)
        self.live = Live(door.gate.is_still_valid, door.stopping)

    def routes(self) -> list[Route]:
        """Return all routes, for the application to serve."""
        found = [
            Route("/", _to("console/")),
            Route(PREFIX, _to("console/")),
            Route(f"{PREFIX}/", self._answered(self._home)),
            Route(f"{PREFIX}/static/{{hash}}/{{name}}", self._assets.answer),
            Route(f"{PREFIX}/login", self._answered(self._login_page)),
            Route(f"{PREFIX}/login", self._answered(self._log_in), methods=["POST"]),
            Route(f"{PREFIX}/oidc/login", self._answered(self._log_in_at_issuer)),
            Route(f"{PREFIX}/oidc/done", self._answered(self._back_from_issuer)),
            Route(f"{PREFIX}/again", self._answered(self._show_kept), methods=["POST"]),
            Route(f"{PREFIX}/session", self._answered(self._tell_session)),
            Route(f"{PREFIX}/logout", self._answered(self._log_out), methods=["POST"]),
            Route(f"{PREFIX}/recipient", _to("./push")),
            Route(f"{PREFIX}/submit", self._answered(self._upload), methods=["POST"]),
        ]
        forms: dict[str, Acting] = {
            "push": self._by_form(PUSH),
            "recipient": self._by_form(RECIPIENT),
            "do/{word}": self._act,
            "batch": self._begin_batch,
            "batches/{batch}/stop": self._stop_batch,
            "batches/{batch}/go-on": self._go_on_batch,
            **{path: self._or_again(act) for path, act in self._submits.forms().items()},
        }
        found += [
            Route(f"{PREFIX}/{path}", self._answered(self._posted(act)), methods=["POST"])
            for path, act in forms.items()
        ]
        for page in (*PAGES, *INNER, page_of(self._batches)):
            found.append(Route(f"{PREFIX}{page.path}", self._answered(self._of(page))))
            if page.is_live:
                live = self._answered(self._stream_of(page))
                found.append(Route(f"{PREFIX}/live{page.path}", live))
        return found

    async def close(self) -> None:
        """End what is done in the background."""
        await self._batches.close()
        await self.drafts.close()

    def _answered(self, endpoint: Endpoint) -> Endpoint:
        """Return what answers a person with a page, whatever is wrong."""

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except PushlaneError as error:
                if isinstance(error, Unauthorized) and request.method in ("GET", "HEAD"):
                    if request.headers.get("hx-request") == "true":  # a login is no part of a page
                        return Response(status_code=HTTPStatus.UNAUTHORIZED)
                    return self._to_login(request)
                reader = await self._reader_or_none(request)
                return _to_another(request, error) or self._shown.problem(request, error, reader)

        return answer

    async def _reader(self, request: Request) -> Reader:
        """Return who asks. Raises Unauthorized without a session, or when its token has ended."""
        login = self._sessions.login(_cookie(request, _COOKIE))
        if login is None:
            raise Unauthorized("log in: your session is over")
        return await self._of_login(request, login)

    async def _of_login(self, request: Request, login: Login) -> Reader:
        peer = request.client.host if request.client else ""
        caller = await self._door.gate.caller(login.authorization, peer)
        nonce, form_token = self._sessions.nonce(login), self._sessions.form_token(login)
        return Reader(login, caller, nonce, form_token)

    async def _reader_or_none(self, request: Request) -> Reader | None:
        try:
            return await self._reader(request)
        except PushlaneError:
            return None

    async def _home(self, request: Request) -> Response:
        """Lead to the first page that its reader may see."""
        reader = await self._reader(request)
        for page in self._shown.nav(reader.caller):
            return redirect(f".{page.path}")
        raise NotAllowed(f"{reader.caller.name} may see no page of the console; ask an admin")

    def _of(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            reader = await self._reader(request)
            ask = self._ask(page, request, reader)
            values = await page.values(ask)
            return self._shown.page(request, page, reader, ask, values)

        return endpoint

    def _posted(self, act: Acting) -> Endpoint:
        """Return what takes a form: without a session it is kept until its writer has logged in."""

        async def endpoint(request: Request) -> Response:
            fields = await _fields(request)
            try:
                reader = await self._reader(request)
            except Unauthorized as error:
                _refuse_foreign(request)
                return self._keep(
                    request, path_of(request).removeprefix(f"{PREFIX}/"), fields, error
                )
            self._refuse_forged(request, fields, reader)
            return await act(request, reader, fields)

        return endpoint

    def _or_again(self, act: Acting) -> Acting:
        """Return what shows a form again, with why, that was not done."""

        async def acting(request: Request, reader: Reader, fields: Fields) -> Response:
            try:
                return await act(request, reader, fields)
            except PushlaneError as error:
                form = Kept(path_of(request).removeprefix(f"{PREFIX}/"), _typed(fields))
                again = self._shown.again(request, form, reader, error)
                return _to_another(request, error) or again

        return acting

    def _by_form(self, page: Page) -> Acting:
        """Return what shows a page that a form asks for, with what is to be in no address."""

        async def show(request: Request, reader: Reader, fields: Fields) -> Response:
            ask = Ask(self._door.do, reader.caller, dict(_own(fields)), {}, self.drafts)
            return self._shown.page(request, page, reader, ask, await page.values(ask))

        return show

    def _stream_of(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                reader = await self._reader(request)
            except Unauthorized:
                return Response(status_code=401)
            ask = self._ask(page, request, reader)
            root = root_of(request, within="/live")

            async def look() -> bytes:
                return self._shown.live(page, root, await page.values(ask.again()))

            seen = page.path, *sorted(ask.parts.items()), *sorted(ask.query.items()), root
            key = (*seen, reader.caller if page.is_own else reader.caller.access)
            opened = self.live.opened(key, look, reader.login.authorization)
            return EventStream(self.live.joined(opened), opened.frames(reader.own))

        return endpoint

    def _ask(self, page: Page, request: Request, reader: Reader) -> Ask:
        query = {name: one for name, one in request.query_params.items() if name in page.query}
        if page is DRAFT:
            self.drafts.of(request.path_params["draft"], reader.caller)
        return Ask(self._door.do, reader.caller, query, request.path_params, self.drafts)

    async def _login_page(self, request: Request) -> Response:
        return self._shown.login(request, {"next": request.query_params.get("next", "")})

    async def _log_in(self, request: Request) -> Response:
        """Begin a session; go on where its person was, or show the form again that was sent."""
        _refuse_foreign(request)
        fields = await _fields(request)
        login = new_login(fields.get("token", "").strip())
        try:
            reader = await self._of_login(request, login)
            cookie = self._sessions.cookie(login)
        except PushlaneError as error:
            return self._shown.login(request, dict(fields), error)
        form = self._sessions.kept(fields.get("kept", ""))
        there = f"./{fields.get('next', '').lstrip('/')}"
        answer = redirect(there) if form is None else self._kept_form(request, form, reader)
        _set_cookie(request, answer, _COOKIE, cookie, SESSION_S)
        return answer

    async def _log_in_at_issuer(self, request: Request) -> Response:
        """Lead a browser to the issuer, and have it keep what it has to bring back."""
        if self._flow is None:
            raise NotFound("login at an issuer is not set up here: set oidc_client_id")
        there, login = await self._flow.begin(
            self._back_url(request), request.query_params.get("next", "")
        )
        answer = Response(status_code=303, headers={"Location": there, "Cache-Control": "no-store"})
        _set_cookie(request, answer, _LOGIN_COOKIE, self._sessions.underway(login), LOGIN_S)
        return answer

    async def _back_from_issuer(self, request: Request) -> Response:
        """Begin the session of who has logged in at the issuer."""
        begun = self._sessions.begun(_cookie(request, _LOGIN_COOKIE))
        try:
            if self._flow is None or begun is None:
                raise Unauthorized("no login is under way in this browser: log in once more")
            token = await self._flow.finish(begun, self._back_url(request), request.query_params)
            login = new_login(token)
            await self._of_login(request, login)
            cookie = self._sessions.cookie(login)
        except PushlaneError as error:
            answer = self._shown.login(request, {"next": begun.next if begun else ""}, error)
            _set_cookie(request, answer, _LOGIN_COOKIE, "", 0)
            return answer
        answer = redirect(f"{root_of(request)}{begun.next.lstrip('/')}")
        _set_cookie(request, answer, _LOGIN_COOKIE, "", 0)
        _set_cookie(request, answer, _COOKIE, cookie, SESSION_S)
        return answer

    def _back_url(self, request: Request) -> str:
        """Return where the issuer leads back to."""
        here = f"{request.url.scheme}://{request.headers.get('host', '')}{PREFIX}/"
        root = self._door.settings.console_url or here
        return f"{root.rstrip('/')}/oidc/done"

    async def _show_kept(self, request: Request) -> Response:
        """Show a form again that waited in the browser for a login at the issuer."""
        reader, fields = await self._reader(request), await _fields(request)
        self._refuse_forged(request, fields, reader)
        form = self._sessions.kept(fields.get("kept", ""))
        if form is None:
            raise BadInput("what you typed is no longer kept: type it again")
        return self._kept_form(request, form, reader)

    def _kept_form(self, request: Request, form: Kept, reader: Reader) -> Response:
        """Show a form that waited for a login, and first whether its file is gone."""
        lost = ""
        if draft := _OF_DRAFT.match(form.path):
            try:
                self.drafts.of(draft[1], reader.caller)
            except NotFound as error:
                lost = str(error)
        return self._shown.again(request, form, reader, lost=lost)

    async def _tell_session(self, request: Request) -> Response:
        """Answer whether a session holds, for a page that has no stream to end with its token."""
        login = self._sessions.login(_cookie(request, _COOKIE))
        holds = login is not None and await self._door.gate.is_still_valid(login.authorization)
        status = HTTPStatus.NO_CONTENT if holds else HTTPStatus.UNAUTHORIZED
        return Response(status_code=status, headers={"Cache-Control": "no-store"})

    async def _log_out(self, request: Request) -> Response:
        """End the session of this browser; its token stays."""
        reader = await self._reader_or_none(request)
        if reader is not None:
            self._refuse_forged(request, await _fields(request), reader)
            self.drafts.end_session(reader.login.id)
        answer = redirect("./login")
        _set_cookie(request, answer, _COOKIE, "", 0)
        return answer

    async def _upload(self, request: Request) -> Response:
        """Keep a file that is to be submitted, and lead to its page."""
        try:
            reader = await self._reader(request)
        except Unauthorized as error:
            return self._shown.login(request, {"next": "submit"}, error)
        _refuse_foreign(request)
        is_ours = partial(self._sessions.fits, reader.login)
        try:
            there = await self._submits.receive(request, reader, is_ours)
        except PushlaneError as error:
            own = ("submit", "To your files that wait")
            answer = self._shown.problem(request, error, reader, own)
            answer.headers["Connection"] = "close"  # what is left of the file is read by nobody
            return answer
        return redirect(there)

    async def _act(self, request: Request, reader: Reader, fields: Fields) -> Response:
        """Do the operation of this name with the fields of a form, and go back to its page."""
        word = request.path_params["word"]
        kind = _BY_WORD.get(word)
        if kind is None or not kind.changes:
            raise BadInput(f"there is no change {word[:40]!r}")
        refuse_role(reader.caller, kind.role, word)
        form = Kept(f"do/{word}", _typed(fields))
        try:
            operation = operation_of_form(kind, _own(fields))
            seen = [fields["_seen"]] if fields.get("_seen") else []
            shown = await self._door.do(reader.caller, operation, Beside(tags_of(kind, seen)))
            done = _done(word, shown)
        except PushlaneError as error:
            return self._shown.again(request, form, reader, error)
        if isinstance(shown, NewTokenView):
            return self._shown.made(request, shown, reader)
        answer = redirect(f"{root_of(request)}{fields.get('_back', '').lstrip('/')}")
        answer.set_cookie(DONE_COOKIE, done, max_age=30, httponly=True, samesite="lax")
        return answer

    async def _begin_batch(self, request: Request, reader: Reader, fields: Fields) -> Response:
        """Change the tasks that a form names, and lead to the page of how far it is."""
        word, tasks = fields.get("action", ""), fields.get("tasks", "").split()
        batch = await self._batches.start(reader.caller, reader.login.authorization, word, tasks)
        return redirect(f"./batches/{batch.id}")

    async def _stop_batch(self, request: Request, reader: Reader, fields: Fields) -> Response:
        batch_id = request.path_params["batch"]
        await self._batches.stop(batch_id, reader.caller)
        return redirect(f"../{batch_id}")

    async def _go_on_batch(self, request: Request, reader: Reader, fields: Fields) -> Response:
        batch_id = request.path_params["batch"]
        await self._batches.go_on(reader.caller, reader.login.authorization, batch_id)
        return redirect(f"../{batch_id}")

    def _keep(self, request: Request, path: str, fields: Fields, error: PushlaneError) -> Response:
        """Ask for a login, and keep what was typed until then."""
        kept = self._sessions.sealed(Kept(path, _typed(fields)))
        return self._shown.login(request, {"kept": kept}, error)

    def _refuse_forged(self, request: Request, fields: Fields, reader: Reader) -> None:
        _refuse_foreign(request)
        if not self._sessions.fits(reader.login, fields.get("_form", "")):
            raise NotAllowed("this form does not belong to your session: load its page again")

    def _to_login(self, request: Request) -> Response:
        there = path_of(request).removeprefix(f"{PREFIX}/")
        query = f"?{request.url.query}" if request.url.query else ""
        return redirect(f"{root_of(request)}login?{urlencode({'next': there + query})}")


async def _fields(request: Request) -> Fields:
    """Return the fields of a form. Raises BadInput for what is none, and as `body_of` does."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise BadInput(f"a form is sent as {_FORM}")
    body = await body_of(request, MOST_BYTES)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1_000)
    except ValueError as error:
        raise BadInput("the form cannot be read") from error
    return ImmutableMultiDict(pairs)


def _done(word: str, shown: Any) -> str:
    """Return what the next page says is done: the operation, of a retry with its number of pushes.

    Raises UserError for a retry of nothing: each of its tasks says why.
    """
    if isinstance(shown, AppliedView):
        return shown.operation
    if word != RetryDead.word():
        return word
    retried = [one for one in shown if one.retried_as]
    if not retried:
        problems = "; ".join(one.problem for one in shown if one.problem)
        raise UserError(f"nothing is sent again: {problems or 'there are no dead pushes any more'}")
    return f"{word}:{sum(one.pushes for one in retried)}"


def _own(fields: Fields) -> Fields:
    """Return the fields of the operation; the console's own begin with `_`.

    What an input of a date and a time has is made Unix ms, where the operation has those.
    """
    return ImmutableMultiDict(
        [
            (name, _ms(text) if name.endswith("_ms") else text)
            for name, text in fields.multi_items()
            if not name.startswith("_")
        ]
    )


def _ms(text: str) -> str:
    """Return the Unix ms of a date and a time in UTC, like 2026-11-27T10:00; else what it is."""
    if not _DATE_TIME.fullmatch(text):
        return text
    try:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # of a 30th of February
        return text
    return str(round(at.timestamp() * 1000))


def _typed(fields: Fields) -> list[tuple[str, str]]:
    """Return what is to be sent again. Raises BadInput for more than a page can hold."""
    found = [(name, text) for name, text in fields.multi_items() if name != "_form"]
    if sum(len(name) + len(text) for name, text in found) > _MOST_KEPT_BYTES:
        raise BadInput(f"the form has more than {_MOST_KEPT_BYTES:,} characters")
    return found


def _refuse_foreign(request: Request) -> None:
    """Raise NotAllowed for a form that another site has sent, by what browsers say of it."""
    site = request.headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):
        return
    origin = request.headers.get("origin")
    if site is None and (origin is None or urlsplit(origin).netloc == request.headers.get("host")):
        return
    raise NotAllowed("the form comes from another site: load its page here, and send it again")


def _cookie_name(request: Request, name: str) -> str:
    """Browsers take a name with `__Host-` over TLS alone; without it we are on loopback."""
    return f"__Host-{name}" if request.url.scheme == "https" else name


def _cookie(request: Request, name: str) -> str:
    return request.cookies.get(_cookie_name(request, name), "")


def _set_cookie(request: Request, answer: Response, name: str, text: str, at_most_s: int) -> None:
    answer.set_cookie(
        _cookie_name(request, name),
        text,
        max_age=at_most_s,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def _to_another(request: Request, error: PushlaneError) -> Response | None:
    """Have a browser ask once more, over another connection, for what another process keeps.

    A balancer leads it there sooner or later. None when it has tried so often that there is none.
    """
    hops = {str(number): number for number in range(_MOST_HOPS)}
    hop = hops.get(request.query_params.get(_HOP, "0"))
    if not isinstance(error, KeptElsewhere) or hop is None:
        return None
    headers = {"Location": f"?{_HOP}={hop + 1}", "Connection": "close", "Cache-Control": "no-store"}
    return Response(status_code=HTTPStatus.TEMPORARY_REDIRECT, headers=headers)


def _to(there: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return redirect(there)

    return endpoint
