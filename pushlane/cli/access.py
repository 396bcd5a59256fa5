"""`access` makes, lists, rotates and revokes tokens, and forbids changes during an incident."""

from __future__ import annotations

from typing import Annotated

import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import Flags, Group, JsonFlag, YesFlag, argument, option
from pushlane.cli.parsing import parse_level, parse_names, parse_word
from pushlane.cli.render import Column, print_json, print_rows, time_text
from pushlane.core.errors import BadInput
from pushlane.model.access import Role
from pushlane.operations.access import (
    CreateToken,
    GetMode,
    ListTokens,
    NewTokenView,
    RevokeToken,
    RotateToken,
    SetMode,
    TokenView,
)
from pushlane.operations.views import plain

_COLUMNS: tuple[Column[TokenView], ...] = (
    Column("ID", lambda one: one.id),
    Column("NAME", lambda one: one.name, elastic=True),
    Column("ROLE", lambda one: one.role),
    Column("APPS", lambda one: "all" if one.apps is None else ", ".join(one.apps), elastic=True),
    Column("BOUNDS", lambda one: _bounds_text(one), elastic=True),
    Column("MADE", lambda one: time_text(one.created_at_ms), spare=1),
    Column("EXPIRES", lambda one: time_text(one.expires_at_ms or 0)),
    Column("USED", lambda one: time_text(one.used_at_ms or 0)),
)

TokenId = Annotated[str, argument("ID", "Its id, as `access list` shows it.")]


def create(
    flags: Flags,
    name: Annotated[str, argument("NAME", "Name of its owner, for people.")],
    role: Annotated[
        str,
        option(
            "viewer|submitter|operator|admin", "Its rank: each may do what those before it may."
        ),
    ],
    app: Annotated[str, option("A,B", "The apps that it sees; all unless given.")] = "",
    level: Annotated[str, option("A,B", "A submitter's levels; all unless given.")] = "",
    sink: Annotated[str, option("A,B", "A submitter's sinks; all unless given.")] = "",
    most_quota: Annotated[int | None, option("N", "A submitter's highest quota.", min=1)] = None,
    most_rate: Annotated[
        float | None, option("N", "A submitter's tasks are held to so many pushes a second.")
    ] = None,
    requests: Annotated[
        float | None, option("N", "Requests a second over HTTP, of each server.")
    ] = None,
    lasts: Annotated[str, option("90d", "How long it is valid; for ever unless given.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Make a token and print its text. It is shown only now, and not stored: keep it."""
    wanted = CreateToken.made(
        name=name,
        grants=parse_word(role, "role", tuple(Role)),
        apps=parse_names(app),
        levels=tuple(parse_level(one) for one in parse_names(level)),
        sinks=parse_names(sink),
        most_quota=most_quota,
        most_per_s=most_rate,
        requests_per_s=requests,
        lasts_s=lasts or 0,
    )
    made = done(flags.settings(), wanted, create=True)
    _print_new(made, as_json)
    apps = _apps_text(made)
    note(f"token {made.id} has the role {made.role}, {apps}; keep its text: it is shown once")


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """Show all tokens, without what would let anybody use them."""
    settings = flags.settings()
    found = done(settings, ListTokens())
    nothing = f"no tokens {settings.place}; make one: pushlane access create NAME --role ROLE"
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


def rotate(
    flags: Flags,
    token: TokenId,
    keep: Annotated[str, option("1d", "How long the old text stays valid: 0s, 2h, 1d.")] = "1d",
    as_json: JsonFlag = False,
) -> None:
    """Give a token a new text, and print it. The old text stays valid for a while."""
    made = done(flags.settings(), RotateToken.made(token=token, keep_s=keep))
    _print_new(made, as_json)
    note(f"token {made.id} has another text; the one before is valid for {keep} more")


def revoke(flags: Flags, token: TokenId, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Revoke a token: within a second it is refused everywhere."""
    settings = flags.settings()
    if not yes:
        found = [one for one in done(settings, ListTokens()) if one.id == token]
        whose = f" of {found[0].name!r}" if found else ""
        question = f"Revoke token {token}{whose}? Its users are refused from then on."
        confirm(f"revoking token {token}", question, f"token {token} is not revoked")
    ended = done(settings, RevokeToken(token=token))
    if as_json:
        print_json(plain(ended))
    note(f"token {ended.id} of {ended.name!r} is revoked")


def read_only(
    flags: Flags,
    state: Annotated[str, argument("[on|off]", "Shows it unless given.")] = "",
    reason: Annotated[str, option("TEXT", "Shown with each refusal.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Forbid every change, for an incident, or allow changes again; dispatchers go on."""
    settings = flags.settings()
    if state:
        is_on = parse_word(state, "state", ("on", "off")) == "on"
        if reason and not is_on:
            raise BadInput("--reason says why nothing may be changed; leave it out with `off`")
        found = done(settings, SetMode(read_only=is_on, reason=reason), create=True)
    else:
        found = done(settings, GetMode())
    if as_json:
        print_json(plain(found))
    elif not found.read_only:
        typer.echo("changes are allowed")
    else:
        why = f": {found.reason}" if found.reason else ""
        since = time_text(found.since_ms or 0)
        typer.echo(f"nothing may be changed, as {found.by} said at {since}{why}")


def _print_new(made: NewTokenView, as_json: bool) -> None:
    if as_json:
        print_json(plain(made))
    else:
        typer.echo(made.token)


def _apps_text(view: TokenView) -> str:
    return "for all apps" if view.apps is None else f"for {', '.join(view.apps)}"


def _bounds_text(view: TokenView) -> str:
    bounds = [*view.levels, *view.sinks]
    if view.most_quota is not None:
        bounds.append(f"quota {view.most_quota}")
    if view.most_per_s is not None:
        bounds.append(f"{view.most_per_s:g}/s")
    if view.requests_per_s is not None:
        bounds.append(f"{view.requests_per_s:g} requests/s")
    return ", ".join(bounds) or "-"


access = Group(
    "Make and revoke tokens, and forbid changes during an incident.",
    (create, list_, rotate, revoke, read_only),
)
