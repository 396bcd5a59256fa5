"""Translates Pulsar's answers: its result codes and the admin's statuses as errors of `lanes`.

Every code has a meaning here; one that a later client adds is `Unreachable` and says its name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import _pulsar

from pushlane.lanes.errors import (
    BadInput,
    OversizedPush,
    PushlaneError,
    TaskConflict,
    UnknownLane,
    Unreachable,
)


class Meaning(NamedTuple):
    error: type[PushlaneError]
    advice: str


_AWAY = Meaning(Unreachable, "run `pushlane up`, or check --broker / PUSHLANE_BROKER")
_DENIED = Meaning(Unreachable, "check the token in PUSHLANE_PULSAR_TOKEN and what it may do")
_FULL = Meaning(Unreachable, "the lane has reached its backlog quota; dispatch it, then try again")
_BUSY = Meaning(Unreachable, "too much is waiting to be sent; try again")
_UNFIT = Meaning(Unreachable, "client and broker do not fit; use Pulsar 3.0 or later")
_MISUSED = Meaning(BadInput, "check --broker / PUSHLANE_BROKER and the namespace")
_GONE = Meaning(UnknownLane, "the lane was never opened, or is dropped with its task")
_TAKEN = Meaning(
    TaskConflict, "another submit of it is under way; wait for its end, then try again"
)
_TOO_LARGE = Meaning(OversizedPush, "make the push smaller")

_RESULTS = {
    _AWAY: (
        "UnknownError Timeout LookupError ConnectError ReadError NotConnected AlreadyClosed "
        "BrokerMetadataError BrokerPersistenceError ChecksumError ServiceUnitNotReady Interrupted "
        "ConsumerNotInitialized ProducerNotInitialized ConsumerNotFound InvalidMessage"
    ),
    _DENIED: "AuthenticationError AuthorizationError ErrorGettingAuthenticationData",
    _FULL: "ProducerBlockedQuotaExceededError ProducerBlockedQuotaExceededException",
    _BUSY: "ProducerQueueIsFull MemoryBufferIsFull TooManyLookupRequestException ConsumerBusy",
    _UNFIT: (
        "UnsupportedVersionError OperationNotSupported NotAllowedError IncompatibleSchema "
        "CryptoError ConsumerAssignError CumulativeAcknowledgementNotAllowedError "
        "TransactionCoordinatorNotFoundError InvalidTxnStatusError TransactionConflict "
        "TransactionNotFound"
    ),
    _MISUSED: "InvalidConfiguration InvalidTopicName InvalidUrl",
    _GONE: "TopicNotFound SubscriptionNotFound TopicTerminated",
    _TAKEN: "ProducerBusy ProducerFenced",
    _TOO_LARGE: "MessageTooBig",
}

# A 412 is a value that is refused, or a broker that is just starting and knows no owner of a topic;
# a 404 is a topic that is not there, or a namespace that the broker has not heard of yet.
_WRONG = re.compile(r"not valid|invalid|illegal|not exist|exceed|should not", re.IGNORECASE)
_NO_TOPIC = re.compile(r"(partitioned )?(topic|subscription)\b", re.IGNORECASE)

MEANINGS = {name: meaning for meaning, names in _RESULTS.items() for name in names.split()}


def failure(result: _pulsar.Result, url: str, doing: str) -> PushlaneError:
    """Make the error that a result code stands for, when `doing` (a verb and its object) failed."""
    meaning = MEANINGS.get(result.name, _AWAY)
    return meaning.error(
        f"Pulsar at {url} could not {doing} ({result.name}, code {result.value}): {meaning.advice}"
    )


def refusal(status: int, reason: str, url: str, doing: str) -> PushlaneError:
    """Make the error that a status of the admin REST stands for, when `doing` failed."""
    meaning = Meaning(Unreachable, "try again, or look into the broker's log")
    if status in (401, 403):
        meaning = _DENIED
    elif status in (400, 405, 406, 422) or (status == 412 and _WRONG.search(reason)):
        meaning = Meaning(BadInput, "check the namespace, and that this is Pulsar's admin REST")
    elif status == 404 and _NO_TOPIC.match(reason):
        meaning = _GONE
    return meaning.error(
        f"Pulsar's admin REST at {url} could not {doing} (status {status}"
        f"{', ' + reason if reason else ''}): {meaning.advice}"
    )


def garbled(url: str, doing: str) -> PushlaneError:
    """Make the error for an answer that is cut off, or from another server than Pulsar."""
    return Unreachable(
        f"Pulsar's admin REST at {url} was to {doing} and answered half, or something else: try "
        "again, and check --admin-url / PUSHLANE_ADMIN_URL if it stays so"
    )


def unanswered(error: Exception, url: str, doing: str) -> PushlaneError:
    """Make the error for an admin REST that cannot be reached at all."""
    return Unreachable(
        f"Pulsar's admin REST at {url} did not answer to {doing} ({type(error).__name__}): "
        "run `pushlane up`, or check --admin-url / PUSHLANE_ADMIN_URL"
    )
