"""The errors that gorush passes on from APNs and FCM, and what each means for a push.

gorush gives them as text: the reason of APNs, or the message of FCM without its code. Only texts of
this list are known; nothing of any other is kept, as it may hold a token.
"""

from __future__ import annotations

import re

from pushlane.core.push import Arrival, Outcome, Scope

LIMIT_OF_GORUSH = 100
"""The setting `core.max_notification` of a gorush that was not told otherwise."""

NOT_ENABLED = Outcome.refused("gorush has this platform not enabled; enable it in its settings")
OVER_LIMIT = Outcome.refused(
    "gorush takes fewer pushes in a request; set batch_size to its core.max_notification"
)
UNKNOWN_ERROR = Outcome.retry("gorush failed to send it", arrival=Arrival.UNKNOWN)

GONE = ("Unregistered", "ExpiredToken", "NotRegistered")
ELSEWHERE = {
    "BadDeviceToken": "BadDeviceToken",
    "DeviceTokenNotForTopic": "DeviceTokenNotForTopic",
    "InvalidRegistration": "InvalidRegistration",
    "Requested entity was not found.": "FCM knows no such token, or no such project",
    "SenderId mismatch": "the token is of another sender",
    "The registration token is not a valid FCM registration token": "it is no token of FCM",
}
"""These are about the token, or about settings under which every token looks so."""
ABOUT_THE_PUSH = (
    "BadCollapseId",
    "BadExpirationDate",
    "BadMessageId",
    "BadPriority",
    "DuplicateHeaders",
    "InvalidPushType",
    "MissingDeviceToken",
    "PayloadEmpty",
    "PayloadTooLarge",
)
CREDENTIALS = (
    "BadCertificate",
    "BadCertificateEnvironment",
    "BadEnvironmentKeyInToken",
    "BadTopic",
    "ExpiredProviderToken",
    "Forbidden",
    "InvalidProviderToken",
    "MissingProviderToken",
    "MissingTopic",
    "TopicDisallowed",
)
BUSY = ("TooManyProviderTokenUpdates", "ServiceUnavailable", "Shutdown", "max capacity reached")
FAILED = ("IdleTimeout", "InternalServerError")
NO_CONNECTION = re.compile(
    r"failed to establish a connection: "  # firebase-admin-go
    r'|Post "[^"]*": (?:proxyconnect tcp: )?dial tcp\b'  # net/http, to APNs
)


def _all_known() -> dict[str, Outcome]:
    def told(code: str) -> str:
        return f"gorush: {code}"

    return {
        **{code: Outcome.gone(told(code)) for code in GONE},
        **{text: Outcome.dead(told(code), scope=None) for text, code in ELSEWHERE.items()},
        **{code: Outcome.dead(told(code)) for code in ABOUT_THE_PUSH},
        **{code: Outcome.refused(told(code)) for code in CREDENTIALS},
        **{code: Outcome.throttled(told(code)) for code in BUSY},
        **{code: Outcome.retry(told(code)) for code in FAILED},
        "TooManyRequests": Outcome.throttled(told("TooManyRequests"), scope=Scope.RECIPIENT),
    }


_KNOWN = _all_known()


def outcome_of(error: str) -> Outcome:
    """Return what becomes of a push that gorush failed to send for this error."""
    if NO_CONNECTION.match(error):
        return Outcome.throttled("gorush: no connection to the provider")
    return _KNOWN.get(error, UNKNOWN_ERROR)
