"""Checks the token of a request, and remembers for half a second that it was valid."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

from pushlane.core.task import now_ms
from pushlane.door.issuer import Issuer
from pushlane.door.pace import Pace
from pushlane.model import access
from pushlane.model.access import Access
from pushlane.model.documents import DocumentStore
from pushlane.operations.session import Caller
from pushlane.util.errors import TooMany, Unauthorized

FACE = "http"
WRONG_PER_S = 20.0
"""Wrong tokens a second that an address may show."""

_KNOWN_S = 0.5
_MOST_KNOWN = 10_000
_NET_BITS = 64
_HOW = (
    "give a token: `Authorization: Bearer pl_...`; an admin makes one with `pushlane access create`"
)
_TOO_MANY = "{who} sends more than {per_s:g} requests a second; try again in {wait_s:.1f} s"


class _Known(NamedTuple):
    """Whose a token is, for so long; `per_s` is how often they may ask a second."""

    until_s: float
    caller: Caller
    per_s: float | None


class Gate:
    """Tells whose a token is. One that was revoked opens nothing half a second later.

    Without an `issuer` tokens are our own alone. All callers together may ask `most_per_s` times a
    second, where that is given.
    """

    def __init__(
        self,
        documents: DocumentStore,
        issuer: Issuer | None = None,
        most_per_s: float | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._issuer = issuer
        self._most_per_s = most_per_s
        self._clock_s = clock_s
        self._known: dict[bytes, _Known] = {}
        self._checks: dict[bytes, asyncio.Task[_Known]] = {}
        self._checks_of: defaultdict[str, set[asyncio.Task[_Known]]] = defaultdict(set)
        self._asked, self._wrong = Pace(clock_s), Pace(clock_s)

    async def caller(self, authorization: str, peer: str = "") -> Caller:
        """Return who asks, by the header of a request that came from an address.

        Raises Unauthorized, and TooMany when they ask too often.
        """
        known = await self._of(authorization, f"{_net(peer) or 'somebody'} with wrong tokens")
        if known.per_s is not None:
            self._refuse_too_many(self._asked, known.caller.name, known.per_s)
            self._asked.note(known.caller.name, known.per_s)
        if self._most_per_s is not None:
            self._refuse_too_many(self._asked, "", self._most_per_s)
            self._asked.note("", self._most_per_s)
        return known.caller

    async def is_still_valid(self, authorization: str) -> bool:
        """Tell whether a token that was taken before is valid now; it is not asked with it."""
        try:
            await self._checked(authorization.partition(" ")[2].strip())
        except Unauthorized:
            return False
        return True

    async def _of(self, authorization: str, guesser: str) -> _Known:
        """Return whose the token of a header is; what is remembered of it is a hash.

        A token that is not remembered is not even looked at while wrong ones come too often. One
        that comes several times at once is looked at once.
        """
        scheme, _, text = authorization.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise Unauthorized(_HOW)
        place = sha256(text.encode()).digest()
        while True:
            found = self._known.get(place)
            if found is not None and self._clock_s() < found.until_s:
                return found
            self._known.pop(place, None)
            if check := self._checks.get(place):
                return await asyncio.shield(check)
            if not (self._wrong.wait_s(guesser) and (others := self._checks_of.get(guesser))):
                break
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        self._refuse_too_many(self._wrong, guesser, WRONG_PER_S)
        return await asyncio.shield(self._begin(place, text, guesser))

    def _begin(self, place: bytes, text: str, guesser: str) -> asyncio.Task[_Known]:
        """Begin to check a token. It counts as a wrong one until it is known to be none."""
        self._wrong.note(guesser, WRONG_PER_S)
        check = asyncio.create_task(self._check(place, text), name="check of a token")
        self._checks[place] = check
        self._checks_of[guesser].add(check)

        def end(check: asyncio.Task[_Known]) -> None:
            del self._checks[place]
            self._checks_of[guesser].discard(check)
            if not self._checks_of[guesser]:
                del self._checks_of[guesser]
            if check.cancelled() or not isinstance(check.exception(), Unauthorized):
                self._wrong.give_back(guesser, WRONG_PER_S)

        check.add_done_callback(end)
        return check

    async def _check(self, place: bytes, text: str) -> _Known:
        now_s = self._clock_s()
        name, rights, per_s = await self._checked(text)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        known = _Known(now_s + _KNOWN_S, Caller(name, FACE, rights), per_s)
        self._known[place] = known
        return known

    async def _checked(self, text: str) -> tuple[str, Access, float | None]:
        """Return the name, the rights and the pace of a token that is valid now."""
        if self._issuer is not None and not text.startswith("pl_"):
            bearer = await self._issuer.bearer(text)
            return f"{bearer.name} (oidc)", bearer.access, bearer.requests_per_s
        token = await access.check(self._documents, text, now_ms())
        await access.note_use(self._documents, token, now_ms())
        return f"{token.name} ({token.id})", token.access, token.requests_per_s

    def _refuse_too_many(self, pace: Pace, who: str, per_s: float) -> None:
        if wait_s := pace.wait_s(who):
            shown = who or "this server: everybody together"
            raise TooMany(_TOO_MANY.format(who=shown, per_s=per_s, wait_s=wait_s), wait_s)


def _net(peer: str) -> str:
    """Return who is behind an address: of IPv6 its /64, as who has one address has all of them."""
    try:
        address = ip_address(peer)
    except ValueError:  # of what is no address, as in tests
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), _NET_BITS), strict=False))
