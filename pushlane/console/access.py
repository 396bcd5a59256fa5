"""The page of who may do what: tokens, what each role may do, and whether changes are allowed.

The text of a token is in the answer to the form that made it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any, NamedTuple
from urllib.parse import urlencode

from pushlane.console.pages import Ask, Page
from pushlane.core.task import now_ms
from pushlane.operations.access import (
    CreateToken,
    GetIssuer,
    GetMode,
    ListTokens,
    RevokeToken,
    RotateToken,
    SetMode,
    TokenView,
)
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.session import Beside

_A_PAGE = 100
_ANY = "ID"
_SCOPES = {
    Of.TASK: "tasks of its apps",
    Of.APP: "its apps",
    Of.APPS: "what belongs to its apps",
    Of.EVERYTHING: "no",
}


class May(NamedTuple):
    """An operation that a role may do: `scope` says of what a token of some apps may."""

    word: str
    text: str
    command: str
    http: str
    scope: str


class RoleRow(NamedTuple):
    """A role, and the operations that it may do and the roles before it may not."""

    role: Role
    more: Sequence[May]


def _may(kind: type[Operation[Any]]) -> May:
    text = cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    command = f"pushlane {kind.commands[0]}" if kind.commands else ""
    return May(kind.word(), text, command, f"{kind.method} /v1{kind.path}", _SCOPES[kind.of])


_ROLES = tuple(
    RoleRow(role, tuple(_may(kind) for kind in OPERATIONS if kind.role is role)) for role in Role
)


async def _values(ask: Ask) -> Mapping[str, Any]:
    listed, mode = Beside(), Beside()
    cursor = ask.query.get("cursor", "")
    found = await ask.do(ListTokens(limit=_A_PAGE, cursor=cursor), listed)
    ask.asked += [
        CreateToken(name="NAME", grants=Role.VIEWER),
        RotateToken(token=_ANY),
        RevokeToken(token=_ANY),
    ]
    return {
        "tokens": found,
        "now_ms": now_ms(),
        "is_first": not cursor,
        "more": urlencode({"cursor": listed.next}) if listed.next else "",
        "issuer": await ask.do(GetIssuer()),
        "mode": await ask.do(GetMode(), mode),
        "seen": mode.tag,
        "may_set_mode": ask.may(SetMode),
        "own": ask.caller.name,
        "roles": _ROLES,
        "rotated": await _named(ask, "rotate"),
        "revoked": await _named(ask, "revoke"),
    }


async def _named(ask: Ask, what: str) -> TokenView | None:
    """Return the token of which it is asked whether this is to be done to it."""
    token = ask.query.get(what, "")
    if not token:
        return None
    return next((one for one in await ask.quietly(ListTokens()) if one.id == token), None)


ACCESS = Page(
    "/access",
    "Access",
    "access.html",
    ListTokens,
    _values,
    query=("cursor", "rotate", "revoke"),
    is_live=False,
)
