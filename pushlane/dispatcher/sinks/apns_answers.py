"""The meaning of what APNs answers, as docs/sinks.md has it in its table.

Apple's list of codes:
https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns
"""

from __future__ import annotations

from typing import Any

import msgspec

from pushlane.core.push import Arrival, Outcome, Scope
from pushlane.dispatcher.sinks.http_client import NO_JSON, clock_note, clock_off_s

EXPIRED_TOKEN = "ExpiredProviderToken"  # noqa: S105 - a code of Apple's
TOO_MANY_TOKENS = "TooManyProviderTokenUpdates"

_CHECK_TOPIC = "check the topic, and which apps the key may send to"
_CHECK_ENVIRONMENT = "check the environment, and which ones the key is for"
_HELD = {
    EXPIRED_TOKEN: "check our clock",
    "InvalidProviderToken": "check key, key_id, team_id and our clock",
    "MissingProviderToken": "check that what stands between lets the header authorization through",
    "UnrelatedKeyIdInToken": "check key and key_id",
    "BadEnvironmentKeyIdInToken": _CHECK_ENVIRONMENT,
    "BadEnvironmentKeyInToken": _CHECK_ENVIRONMENT,
    "BadCertificate": "check key, key_id and team_id",
    "BadCertificateEnvironment": _CHECK_ENVIRONMENT,
    "Forbidden": "check what the key may do",
    "BadTopic": _CHECK_TOPIC,
    "MissingTopic": _CHECK_TOPIC,
    "TopicDisallowed": _CHECK_TOPIC,
}
_DOUBTFUL = frozenset({"BadDeviceToken", "DeviceTokenNotForTopic"})
_GONE = frozenset({*_DOUBTFUL, "Unregistered", "ExpiredToken"})
_OF_THE_PUSH = frozenset({"PayloadTooLarge", "PayloadEmpty", "BadCollapseId", "BadExpirationDate"})
_OF_THE_REQUEST = frozenset(
    {
        "BadMessageId",
        "BadPath",
        "BadPriority",
        "DuplicateHeaders",
        "InvalidPushType",
        "MethodNotAllowed",
        "MissingDeviceToken",
    }
)
_BUSY = frozenset({"ServiceUnavailable", "Shutdown", TOO_MANY_TOKENS})
_OTHERS = frozenset({"IdleTimeout", "InternalServerError", "TooManyRequests"})
_KNOWN = _HELD.keys() | _GONE | _OF_THE_PUSH | _OF_THE_REQUEST | _BUSY | _OTHERS
_BY_STATUS = {
    401: "Forbidden",
    403: "Forbidden",
    410: "Unregistered",
    413: "PayloadTooLarge",
    429: "ServiceUnavailable",
    503: "ServiceUnavailable",
}

_AGAIN_AFTER_ERROR_S = 900.0  # Apple: 5xx after 15 minutes
_MOST_MS = 2**53


class ApnsAnswer(msgspec.Struct, frozen=True):
    """An answer other than 200. `code` is empty where it has none of Apple's codes.

    `after_s` is from a Retry-After, `date` the header of that name.
    """

    status: int
    code: str = ""
    gone_at_ms: int = 0
    after_s: float | None = None
    date: str | None = None

    @property
    def is_doubtful(self) -> bool:
        """True for an answer about an address that a wrong environment or topic gets for all."""
        return self.code in _DOUBTFUL


class _Body(msgspec.Struct):
    reason: Any = None
    timestamp: Any = None


def read_body(body: bytes) -> tuple[str, int]:
    """Return the code and the time in ms that an answer has, an empty one and 0 where it has not.

    A code that is not Apple's is not kept: anything could be in it.
    """
    try:
        found = msgspec.json.decode(body, type=_Body)
    except NO_JSON:
        return "", 0
    code, at_ms = found.reason, found.timestamp
    is_time = isinstance(at_ms, int) and not isinstance(at_ms, bool) and 0 < at_ms < _MOST_MS
    return code if isinstance(code, str) and code in _KNOWN else "", at_ms if is_time else 0


def outcome_of(answer: ApnsAnswer, now_s: float) -> Outcome:
    """Return what becomes of a push that got this answer at `now_s`, where the address is believed
    to be as bad as it is called.
    """
    code = answer.code or _BY_STATUS.get(answer.status, "")
    reason = answer.code or f"HTTP {answer.status}"
    if hint := _HELD.get(code):
        return Outcome.refused(f"{reason}: {clock_note(clock_off_s(answer.date, now_s)) or hint}")
    if code in _GONE:
        return Outcome.gone(reason, answer.gone_at_ms)
    if code in _OF_THE_PUSH:
        return Outcome.dead(reason)
    if code == TOO_MANY_TOKENS:
        reason += ": does another program sign for this team, or is our clock off?"
    if code in _BUSY:
        return Outcome.throttled(reason, answer.after_s)
    if code == "TooManyRequests":
        return Outcome.throttled(reason, answer.after_s, Scope.RECIPIENT)
    if code == "IdleTimeout":
        return Outcome.retry(reason, arrival=Arrival.REFUSED)
    if answer.status >= 500:
        return Outcome.retry(reason, _AGAIN_AFTER_ERROR_S)
    return Outcome.dead(reason, scope=None)


class DoubtedAddresses:
    """The addresses in a row that APNs called bad, of which none was delivered to in between.

    A wrong environment or topic gets the same answer for every address as a token that is bad. So
    until something was delivered no address is dead, and its push loses an attempt: a bad one alone
    still comes to its end. Of too many in a row the sink is at fault, and is held.
    """

    MOST_UNPROVEN = 10
    MOST_PROVEN = 100

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._row: set[str] = set()
        self._has_delivered = False

    def delivered(self) -> None:
        """Note that environment and topic are right."""
        self._has_delivered = True
        if self._row:
            self._row.clear()

    def outcome(self, address: str, called_bad: Outcome) -> Outcome:
        """Return what becomes of a push to an address that is called bad."""
        most = self.MOST_PROVEN if self._has_delivered else self.MOST_UNPROVEN
        if len(self._row) < most:
            self._row.add(address)
        if len(self._row) >= most:
            return Outcome.refused(
                f"{called_bad.reason} for {most} addresses in a row: check the topic, and whether "
                f"they are of the environment {self._environment}"
            )
        if self._has_delivered:
            return called_bad
        return Outcome.retry(called_bad.reason, arrival=Arrival.REFUSED)
