"""The token by which APNs knows us: signed anew every 40 minutes, without a store to share it.

Apple takes a token that is up to an hour old, and no new one within 20 minutes of the last. Whether
it counts by connection or by team is not documented (threads 702056 and 674772 of its forums say
one each). A token says only who signed it and when, and our signatures are deterministic. So all
processes say that they signed at the last common boundary of time, and have the very same token:
however many there are, and however often they start, Apple sees one every 40 minutes. Clocks that
differ by less than a minute do no harm, as a boundary counts only once it is a minute old, when it
lies in nobody's future.

Whoever first pushes shortly before a boundary has a second token minutes later. Where Apple calls
that one too many, the one before is used until it is an hour old.
https://developer.apple.com/documentation/usernotifications/establishing-a-token-based-connection-to-apns
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from pushlane.dispatcher.sinks.es256 import signed

_EVERY_S = 40 * 60
_SETTLED_S = 60
_LEAST_S = 20 * 60
_OLDEST_S = 60 * 60 - _SETTLED_S


class ProviderToken:
    """The token of one key, for now by the clock `now`, in seconds of Unix time."""

    def __init__(
        self, key: EllipticCurvePrivateKey, key_id: str, team_id: str, now: Callable[[], float]
    ) -> None:
        self._key = key
        self._key_id = key_id
        self._team_id = team_id
        self._now = now
        self._from_s = 0  # the boundaries are so many seconds later than those of all processes
        self._issued_at_s = -1
        self._kept_s = -_EVERY_S  # the token before is in use, and was issued then
        self._text = ""

    def current(self) -> str:
        now_s = int(self._now())
        settled_s = now_s - _SETTLED_S - self._from_s
        issued_at_s = settled_s // _EVERY_S * _EVERY_S + self._from_s
        if issued_at_s == self._kept_s + _EVERY_S and now_s < self._kept_s + _OLDEST_S:
            issued_at_s = self._kept_s
        if issued_at_s != self._issued_at_s:
            claims = {"iss": self._team_id, "iat": issued_at_s}
            self._text = signed(self._key, {"kid": self._key_id}, claims)
            self._issued_at_s = issued_at_s
        return self._text

    def renewed(self, expired: str) -> str | None:
        """Return a token in place of one that APNs finds expired, as it does if our clock is late.

        From then on this process has boundaries of its own. None if the token is younger than 20
        minutes by our clock: another would be expired too, and one too many.
        """
        current = self.current()
        if current != expired:
            return current
        now_s = int(self._now())
        if now_s - self._issued_at_s < _LEAST_S:
            return None
        self._from_s = (now_s - _SETTLED_S) % _EVERY_S
        return self.current()

    def before(self, one_too_many: str) -> str | None:
        """Return the token before one that comes too soon for APNs, to be used while it is valid.

        None if it is too old for that.
        """
        current = self.current()
        if current != one_too_many:
            return current
        before_s = self._issued_at_s - _EVERY_S
        if int(self._now()) >= before_s + _OLDEST_S:
            return None
        self._kept_s = before_s
        return self.current()
