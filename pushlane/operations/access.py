"""Operations on tokens, and on the read-only mode of an incident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.task import Level, now_ms
from pushlane.model import access
from pushlane.model.access import Role, Token
from pushlane.model.mode import ReadOnly, read_only, set_read_only
from pushlane.operations.operation import LONGEST_S, ETag, Of, Operation, read_by
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session
from pushlane.util.conversion import seconds

_DAY_S = 86_400.0
_MOST_KEPT_S = 30 * _DAY_S


def _keep_s(what: str, given: object) -> float:
    return seconds(what, given, 0, _MOST_KEPT_S)


def _lasts_s(what: str, given: object) -> float:
    return seconds(what, given, 0, LONGEST_S)


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without what would let anybody use it. Times are Unix ms.

    `apps` are those that it sees; absent for all. A submitter may ask for these `levels` and
    `sinks` (none named: all), and for no more than `most_quota` and `most_per_s`.
    """

    id: str
    name: str
    role: Role
    apps: tuple[str, ...] | None
    levels: tuple[Level, ...]
    sinks: tuple[str, ...]
    most_quota: int | None
    most_per_s: float | None
    requests_per_s: float | None
    created_at_ms: int
    created_by: str
    expires_at_ms: int | None
    used_at_ms: int | None


class NewTokenView(TokenView, frozen=True, kw_only=True):
    """A token that was made just now: `token` is its text, which nothing can show again."""

    token: str


class CallerView(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the role, and the apps that they see, absent for all.

    A submitter may ask for these `levels` and `sinks` (none named: all), and for no more than
    `most_quota` and `most_per_s`.
    """

    name: str
    role: Role
    apps: tuple[str, ...] | None
    levels: tuple[Level, ...]
    sinks: tuple[str, ...]
    most_quota: int | None
    most_per_s: float | None


class GetCaller(Operation[CallerView], frozen=True, kw_only=True):
    """Say who asks, and what they may do."""

    method, path, role, of = "GET", "/me", Role.VIEWER, Of.APPS

    async def run(self, at: Session) -> CallerView:
        granted = at.caller.access
        return CallerView(
            name=at.caller.name,
            role=granted.role,
            apps=None if granted.apps is None else tuple(sorted(granted.apps)),
            levels=tuple(level for level in Level if level in granted.levels),
            sinks=tuple(sorted(granted.sinks)),
            most_quota=granted.most_quota,
            most_per_s=granted.most_per_s,
        )


TokenWord = Annotated[str, Meta(description="Its id, as `pushlane access list` shows it.")]


class CreateToken(Operation[NewTokenView], frozen=True, kw_only=True):
    """Make a token. Its text is shown once, and kept by nobody but you."""

    method, path, role, of = "POST", "/access", Role.ADMIN, Of.EVERYTHING
    commands = ("access create",)
    changes = True

    name: Annotated[str, Meta(description="Name of its owner, for people.", max_length=200)]
    grants: Annotated[Role, Meta(description="Its rank: viewer, submitter, operator or admin.")]
    apps: Annotated[
        tuple[str, ...], Meta(description="The apps that it sees; all unless given.")
    ] = ()
    levels: Annotated[
        tuple[Level, ...], Meta(description="A submitter's levels; all unless given.")
    ] = ()
    sinks: Annotated[
        tuple[str, ...], Meta(description="A submitter's sinks; all unless given.")
    ] = ()
    most_quota: Annotated[int, Meta(ge=1, description="A submitter's highest quota.")] | None = None
    most_per_s: (
        Annotated[float, Meta(gt=0, description="A submitter's tasks are held to this rate.")]
        | None
    ) = None
    requests_per_s: (
        Annotated[
            float,
            Meta(
                ge=access.LEAST_PER_S,
                le=access.MOST_PER_S,
                description="Requests a second over HTTP, a process.",
            ),
        ]
        | None
    ) = None
    lasts_s: Annotated[
        float,
        read_by(_lasts_s),
        Meta(ge=0, le=LONGEST_S, description="Seconds that it is valid; 0 is for ever."),
    ] = 0

    async def run(self, at: Session) -> NewTokenView:
        if not self.name.strip():
            raise BadInput("give the token a name, so that people know its owner")
        is_bounded = self.levels or self.sinks or self.most_quota or self.most_per_s
        if is_bounded and self.grants is not Role.SUBMITTER:
            raise BadInput(
                "levels, sinks, a quota and a rate are only for submitters, and this token has "
                f"the role {self.grants}: leave them out"
            )
        now = now_ms()
        token = Token(
            id="",
            role=self.grants,
            name=self.name.strip(),
            apps=self.apps or None,
            levels=self.levels,
            sinks=self.sinks,
            most_quota=self.most_quota,
            most_per_s=self.most_per_s,
            requests_per_s=self.requests_per_s,
            created_at_ms=now,
            created_by=at.caller.name,
            expires_at_ms=now + round(self.lasts_s * 1000) if self.lasts_s else 0,
        )
        made = await access.create(at.backend.documents, token)
        at.changed(f"token/{made.token.id}", {}, msgspec.to_builtins(_view(made.token)))
        return _new_view(made)


class ListTokens(Operation[list[TokenView]], frozen=True, kw_only=True):
    """Show all tokens, without what would let anybody use them."""

    method, path, role, of = "GET", "/access", Role.ADMIN, Of.EVERYTHING
    commands = ("access list",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[TokenView]:
        found = await access.tokens(at.backend.documents)
        shown = page(at, self, found, lambda one: f"{one.created_at_ms:020d}-{one.id}")
        return [_view(one) for one in shown]


class IssuerView(msgspec.Struct, frozen=True, kw_only=True):
    """The issuer whose tokens a server takes beside ours, and their rights; absent without one.

    `roles` are ours by the words of the issuer for them, which are in `role_claim`. Without an
    `apps_claim` its tokens are of all apps. `requests_per_s` bounds each bearer, but who has a
    number of their own in `requests_claim`. People log in to the console as `client_id`.
    """

    issuer: str | None = None
    audience: str | None = None
    roles: Mapping[str, Role] | None = None
    role_claim: str | None = None
    apps_claim: str | None = None
    requests_per_s: float | None = None
    requests_claim: str | None = None
    client_id: str | None = None


class GetIssuer(Operation[IssuerView], frozen=True, kw_only=True):
    """Show whose tokens are taken beside ours, and which role each of their words is."""

    method, path, role, of = "GET", "/access/issuer", Role.ADMIN, Of.EVERYTHING

    async def run(self, at: Session) -> IssuerView:
        settings = at.settings
        if not settings.oidc_issuer:
            return IssuerView()
        return IssuerView(
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            roles=access.roles_of(settings.oidc_roles),
            role_claim=settings.oidc_role_claim,
            apps_claim=settings.oidc_apps_claim or None,
            requests_per_s=settings.oidc_requests_per_s,
            requests_claim=settings.oidc_requests_claim or None,
            client_id=settings.oidc_client_id or None,
        )


class RotateToken(Operation[NewTokenView], frozen=True, kw_only=True):
    """Give a token another text. The one that it has stays valid for a while."""

    method, path, role, of = "POST", "/access/{token}/rotate", Role.ADMIN, Of.EVERYTHING
    commands = ("access rotate",)
    changes = True

    token: TokenWord
    keep_s: Annotated[
        float,
        read_by(_keep_s),
        Meta(ge=0, le=_MOST_KEPT_S, description="Seconds that the text of now stays valid."),
    ] = _DAY_S

    async def run(self, at: Session) -> NewTokenView:
        made = await access.rotate(at.backend.documents, self.token, round(self.keep_s * 1000))
        at.changed(f"token/{self.token}", {}, {"rotated": True, "keep_s": self.keep_s})
        return _new_view(made)


class RevokeToken(Operation[TokenView], frozen=True, kw_only=True):
    """End a token: within a second it opens nothing, anywhere."""

    method, path, role, of = "DELETE", "/access/{token}", Role.ADMIN, Of.EVERYTHING
    commands = ("access revoke",)
    changes = destroys = True

    token: TokenWord

    async def run(self, at: Session) -> TokenView:
        shown = _view(await access.revoke(at.backend.documents, self.token))
        at.changed(f"token/{self.token}", msgspec.to_builtins(shown), {})
        return shown


class ModeView(msgspec.Struct, frozen=True):
    """Whether all changes are refused, and then by whom, why, and since when (Unix ms)."""

    read_only: bool
    by: str | None = None
    reason: str | None = None
    since_ms: int | None = None


class GetMode(Operation[ModeView], frozen=True, kw_only=True):
    """Show whether anything may be changed."""

    method, path, role, of = "GET", "/mode", Role.VIEWER, Of.APPS
    commands = ("access read-only",)
    etag = ETag.SHOWN

    async def run(self, at: Session) -> ModeView:
        return _mode_view(at, await read_only(at.backend.documents))


class SetMode(Operation[ModeView], frozen=True, kw_only=True):
    """Forbid every change, for an incident, or allow changes again. Dispatchers go on delivering.

    It holds for all commands, clients and processes that change something from now on.
    """

    method, path, role, of = "PUT", "/mode", Role.ADMIN, Of.EVERYTHING
    commands = ("access read-only",)
    changes = ends_read_only = True
    etag = ETag.NEEDED

    read_only: Annotated[bool, Meta(description="Whether every change is refused.")]
    reason: Annotated[str, Meta(max_length=200, description="Shown with each refusal.")] = ""

    async def run(self, at: Session) -> ModeView:
        after = ReadOnly(at.caller.name, self.reason, now_ms()) if self.read_only else None
        before = await set_read_only(
            at.backend.documents, after, lambda there: at.require_seen("mode", _mode_set(there))
        )
        at.changed("mode", {"read_only": before is not None}, {"read_only": self.read_only})
        return _mode_view(at, after)


def _mode_set(mode: ReadOnly | None) -> dict[str, Any]:
    """Return what was set of the mode. By its time one is another than an equal one before."""
    return msgspec.to_builtins(_view_of_mode(mode)) if mode else {"read_only": False}


def _mode_view(at: Session, mode: ReadOnly | None) -> ModeView:
    at.show("mode", _mode_set(mode))
    return _view_of_mode(mode)


def _view_of_mode(mode: ReadOnly | None) -> ModeView:
    if mode is None:
        return ModeView(read_only=False)
    return ModeView(True, mode.by, mode.reason or None, mode.since_ms)


def _view(token: Token) -> TokenView:
    return TokenView(**_fields(token))


def _new_view(made: access.NewToken) -> NewTokenView:
    return NewTokenView(**_fields(made.token), token=made.text)


def _fields(token: Token) -> dict[str, Any]:
    shown = {name: getattr(token, name) for name in TokenView.__struct_fields__}
    return {
        **shown,
        "expires_at_ms": token.expires_at_ms or None,
        "used_at_ms": token.used_at_ms or None,
    }
