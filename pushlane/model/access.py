"""Keeps tokens, with the role of each and the apps that it sees, and checks them.

A token is `pl_ID_SECRET`. What is kept is its id, in the clear, and a SHA-256 of its secret, which
is 32 random bytes: nothing that is guessed makes a longer hash worth its time. It is shown once.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import Level, now_ms
from pushlane.model.documents import DocumentStore, as_json
from pushlane.util.errors import NotAllowed, NotFound, Unauthorized

_KIND = "access"
_PREFIX = "pl"
_ID_BYTES = 5
_SECRET_BYTES = 32
_TOKEN = re.compile(rf"{_PREFIX}_([0-9a-f]{{{2 * _ID_BYTES}}})_([\w-]{{43}})", re.ASCII)
_TRIES = 10
_USE_TOLD_EVERY_MS = 600_000

LEAST_PER_S = 0.001
MOST_PER_S = 1_000_000.0
"""Requests a second that somebody may be held to."""

REFUSED = "the token is not known, has expired or was revoked; ask an admin for another"


class Role(StrEnum):
    """A rank of callers: each may do all that those before it may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Tell whether this role is enough for what needs another."""
        roles = list(Role)
        return roles.index(self) >= roles.index(needed)


def roles_of(given: str) -> dict[str, Role]:
    """Return the roles by the words of the issuer for them, of a text like `ops=operator`.

    Raises BadInput for what is none.
    """
    found: dict[str, Role] = {}
    for one in filter(None, (part.strip() for part in given.split(","))):
        word, equals, role = one.partition("=")
        if not equals or role not in list(Role):
            raise BadInput(
                f"oidc_roles has {one[:60]!r}; give WORD=ROLE, where ROLE is one of "
                f"{', '.join(Role)}"
            )
        found[word] = Role(role)
    return found


@dataclass(frozen=True)
class Access:
    """The rights of a caller: its role, and the apps that it sees, None for all.

    A submitter may ask for these `levels` and `sinks` (empty for all), a quota up to `most_quota`
    and a rate from the first push on of `most_per_s` or less; None is no bound.
    """

    role: Role
    apps: frozenset[str] | None = None
    levels: frozenset[Level] = frozenset()
    sinks: frozenset[str] = frozenset()
    most_quota: int | None = None
    most_per_s: float | None = None

    def refuse_beyond(
        self,
        who: str,
        *,
        level: Level,
        sinks: Collection[str],
        quota: int,
        rate_per_s: float | None,
    ) -> None:
        """Raise NotAllowed for a task that is over the bounds, and say which bound that is.

        `sinks` are none for the sink `default`; a rate of None is none that was asked for.
        """
        if self.levels and level not in self.levels:
            allowed = ", ".join(sorted(self.levels))
            raise NotAllowed(f"{who} may submit at {allowed}, not at {level}")
        if self.sinks and not {*(sinks or (DEFAULT_SINK,))} <= self.sinks:
            raise NotAllowed(f"{who} may submit only to {', '.join(sorted(self.sinks))}")
        if self.most_quota is not None and quota > self.most_quota:
            raise NotAllowed(f"{who} may ask for a quota up to {self.most_quota}, not {quota}")
        if self.most_per_s is not None and (rate_per_s or 0) > self.most_per_s:
            raise NotAllowed(
                f"{who} may ask for up to {self.most_per_s:g} pushes/s, not {rate_per_s:g}"
            )


EVERYTHING = Access(Role.ADMIN)
"""The rights of whoever holds the keys of broker and registry: all there are."""


class _Secret(msgspec.Struct, frozen=True):
    """The hash of a secret that is valid until then; 0 is for as long as its token."""

    sha256: str
    until_ms: int = 0


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is kept. `apps` of None are all; times are Unix ms, 0 is never."""

    id: str
    role: Role
    name: str = ""
    apps: tuple[str, ...] | None = None
    levels: tuple[Level, ...] = ()
    sinks: tuple[str, ...] = ()
    most_quota: int | None = None
    most_per_s: float | None = None
    requests_per_s: float | None = None
    created_at_ms: int = 0
    created_by: str = ""
    expires_at_ms: int = 0
    used_at_ms: int = 0
    secrets: tuple[_Secret, ...] = ()

    @property
    def access(self) -> Access:
        apps = None if self.apps is None else frozenset(self.apps)
        levels, sinks = frozenset(self.levels), frozenset(self.sinks)
        return Access(self.role, apps, levels, sinks, self.most_quota, self.most_per_s)


class NewToken(msgspec.Struct, frozen=True):
    """A token that was made just now, and its text, which nothing can show again."""

    token: Token
    text: str


async def create(documents: DocumentStore, token: Token) -> NewToken:
    """Keep a new token, with an id and a secret of its own."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    made = replace(token, id=secrets.token_hex(_ID_BYTES), secrets=(_Secret(_hash(secret)),))
    await documents.put(_KIND, made.id, _encode(made), None)
    return NewToken(made, f"{_PREFIX}_{made.id}_{secret}")


async def tokens(documents: DocumentStore) -> list[Token]:
    """Return all tokens, by when they were made, then by id."""
    found = [_decode(one.body) for one in await documents.list(_KIND)]
    return sorted(found, key=lambda token: (token.created_at_ms, token.id))


async def rotate(documents: DocumentStore, token_id: str, keep_ms: int) -> NewToken:
    """Give a token another secret; the one that it has stays valid for so long.

    Raises:
        NotFound: there is no such token.
        TaskConflict: it is being changed elsewhere again and again.
    """
    secret = secrets.token_urlsafe(_SECRET_BYTES)

    def edit(token: Token) -> Token:
        [*_, last] = token.secrets
        old = replace(last, until_ms=now_ms() + keep_ms)
        return replace(token, secrets=(old, _Secret(_hash(secret))))

    return NewToken(await _change(documents, token_id, edit), f"{_PREFIX}_{token_id}_{secret}")


async def revoke(documents: DocumentStore, token_id: str) -> Token:
    """Remove a token, and return what it was. Raises NotFound when there is none."""
    token, _ = await _get(documents, token_id)
    await documents.remove(_KIND, token_id)
    return token


async def check(documents: DocumentStore, text: str, at_ms: int) -> Token:
    """Return the token of a text. Raises Unauthorized for one that is not valid now."""
    match = _TOKEN.fullmatch(text)
    found = await documents.get(_KIND, match[1]) if match else None
    if match is None or found is None:
        raise Unauthorized(REFUSED)
    token, given = _decode(found.body), _hash(match[2])
    is_known = False
    for secret in token.secrets:
        is_valid = not secret.until_ms or at_ms < secret.until_ms
        is_known |= hmac.compare_digest(secret.sha256, given) and is_valid
    if not is_known or (token.expires_at_ms and at_ms >= token.expires_at_ms):
        raise Unauthorized(REFUSED)
    return token


async def note_use(documents: DocumentStore, token: Token, at_ms: int) -> None:
    """Note when a token was used last, at most every ten minutes."""
    if at_ms - token.used_at_ms < _USE_TOLD_EVERY_MS:
        return
    found = await documents.get(_KIND, token.id)
    if found is not None:  # another process may note the same
        used = replace(_decode(found.body), used_at_ms=at_ms)
        await documents.put(_KIND, token.id, _encode(used), found.version)


async def _change(documents: DocumentStore, token_id: str, edit: Callable[[Token], Token]) -> Token:
    for _ in range(_TRIES):
        token, version = await _get(documents, token_id)
        after = edit(token)
        if await documents.put(_KIND, token_id, _encode(after), version) is not None:
            return after
    raise TaskConflict(f"token {token_id} is being changed elsewhere; look at it, then try again")


async def _get(documents: DocumentStore, token_id: str) -> tuple[Token, int]:
    found = await documents.get(_KIND, token_id) if token_id else None
    if found is None:
        raise NotFound(f"there is no token {token_id[:40]!r}; `pushlane access list` lists them")
    return _decode(found.body), found.version


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _encode(token: Token) -> bytes:
    return as_json(f"the token {token.id}", token, Token)


def _decode(body: bytes) -> Token:
    return msgspec.json.decode(body, type=Token)
