"""Translates Pulsar's answers: its result codes and the admin's statuses as errors of ours.

Every code has a meaning here; one that a later client adds is `Unreachable` and says its name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import _pulsar

from pushlane.core.errors import BadInput, PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.util.errors import Denied, MissingPermission, OversizedPush

if TYPE_CHECKING:
    from pushlane.backends.pulsar.credentials import Credentials


class Meaning(NamedTuple):
    error: type[PushlaneError]
    advice: str


_AWAY = Meaning(Unreachable, "run `pushlane up`, or check --broker / PUSHLANE_BROKER")
_REFUSED = Meaning(Denied, "check pulsar_token, pulsar_token_file or PUSHLANE_PULSAR_TOKEN")
_DENIED = Meaning(MissingPermission, "ask its administrator for the permission: docs/security.md")
_FULL = Meaning(Unreachable, "the lane has reached its backlog quota; dispatch it, then try again")
_BUSY = Meaning(Unreachable, "too much is waiting to be sent; try again")
_UNFIT = Meaning(Unreachable, "client and broker are not compatible; use Pulsar 3.0 or later")
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
    _REFUSED: "AuthenticationError ErrorGettingAuthenticationData",
    _DENIED: "AuthorizationError",
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

# How a broker names what it refuses: "Unauthorized to validateTopicOperation for operation
# [SUBSCRIBE] on topic [persistent://a/b/c]", at some places with "clientAppId [role]".
_OPERATION = re.compile(r"operation \[(\w+)\]")
_ROLE = re.compile(r"clientAppId \[([^\]]+)\]")
_TOPIC = re.compile(r"topic \[\w+://([^\]]+)\]")
_NAMESPACE = re.compile(r"namespace \[([^\]]+)\]")
_TENANT = re.compile(r"tenant \[([^\]]+)\]")
_OF_SUPERUSERS = {"CREATE_TENANT", "GET_TENANT", "UPDATE_TENANT", "LIST_BROKERS", "LIST_TENANTS"}
_GRANTED = {
    *("PRODUCE", "CONSUME", "SUBSCRIBE", "UNSUBSCRIBE", "LOOKUP", "GET_STATS", "PEEK_MESSAGES"),
    *("RESET_CURSOR", "GET_TOPICS", "GET_TOPIC", "GET_BUNDLE", "GET_SUBSCRIPTIONS"),
}

MEANINGS = {name: meaning for meaning, names in _RESULTS.items() for name in names.split()}


def failure(
    result: _pulsar.Result, url: str, doing: str, credentials: Credentials | None = None
) -> PushlaneError:
    """Make the error that a result code stands for, when `doing` (a verb and its object) failed."""
    meaning = MEANINGS.get(result.name, _AWAY)
    advice = meaning.advice
    if credentials is not None and meaning is _AWAY and credentials.has_expired():
        meaning = _REFUSED  # the client goes on trying with it until the time is over
    if credentials is not None and meaning is _REFUSED:
        advice = credentials.problem()
    elif credentials is not None and meaning is _DENIED:
        advice = missing_permission("", credentials.role())
    return meaning.error(
        f"Pulsar at {url} could not {doing} ({result.name}, code {result.value}): {advice}"
    )


def refusal(
    status: int, reason: str, url: str, doing: str, credentials: Credentials | None = None
) -> PushlaneError:
    """Make the error that a status of the admin REST stands for, when `doing` failed."""
    meaning = Meaning(Unreachable, "try again, or look at the broker's log")
    if status in (401, 403):
        role = credentials.role() if credentials is not None else ""
        if "nauthorized" in reason or "ermission" in reason:  # it knows who we are
            meaning = Meaning(MissingPermission, missing_permission(reason, role))
        else:
            meaning = Meaning(Denied, credentials.problem()) if credentials else _REFUSED
    elif status in (400, 405, 406, 422) or (status == 412 and _WRONG.search(reason)):
        meaning = Meaning(BadInput, "check the namespace, and that this is Pulsar's admin REST")
    elif status == 404 and _NO_TOPIC.match(reason):
        meaning = _GONE
    return meaning.error(
        f"Pulsar's admin REST at {url} could not {doing} (status {status}"
        f"{', ' + reason if reason else ''}): {meaning.advice}"
    )


def missing_permission(reason: str, role: str) -> str:
    """Return the permission that a refusal is about, and the command that gives it.

    The broker names the operation, mostly the place, and sometimes our role.
    """
    operation = _found(_OPERATION, reason)
    role = _found(_ROLE, reason) or role or "ROLE"
    topic = _found(_TOPIC, reason)
    namespace = _found(_NAMESPACE, reason) or "/".join(topic.split("/")[:2]) or "TENANT/NAMESPACE"
    about = f"role {role} lacks the permission" + (f" for {operation}" if operation else "")
    end = "; `pushlane bootstrap --print` lists all that pushlane needs"
    if operation in _OF_SUPERUSERS:
        return f"{about}: only a superuser has it (superUserRoles in broker.conf){end}"
    if operation and operation not in _GRANTED:
        tenant = _found(_TENANT, reason) or namespace.split("/")[0]
        return (
            f"{about}: only an admin of the tenant has it. An administrator gives it with "
            f"`pulsar-admin tenants update {tenant} --admin-roles {role},OTHERS`{end}"
        )
    return (
        f"{about}. An administrator gives it with `pulsar-admin namespaces grant-permission "
        f"{namespace} --role {role} --actions produce,consume`{end}"
    )


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def unanswered(error: Exception, url: str, doing: str, advice: str = "") -> PushlaneError:
    """Make the error for an admin REST that cannot be reached at all."""
    advice = advice or "run `pushlane up`, or check --admin-url / PUSHLANE_ADMIN_URL"
    return Unreachable(
        f"Pulsar's admin REST at {url} did not answer to {doing} ({type(error).__name__}): {advice}"
    )
