"""The address of a Kafka topic, the settings of its client, its id, and errors in our words."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from pushlane.core.errors import BadInput, PushlaneError, Unreachable, UserError
from pushlane.ingest.source import SourceChanged
from pushlane.util.errors import Denied

client_log = logging.getLogger("pushlane.ingest.kafka")

SCHEME = "kafka://"
ASK_S = 10.0
"""Seconds after which a question to the brokers has no answer."""

_URL = re.compile(r"kafka://([^/?#@\s]+)/([A-Za-z0-9._-]{1,249})")
_SECRET = re.compile(r"(password|secret|passphrase|key\.pem|oauthbearer\.config)$")
_OURS = {
    "bootstrap.servers": "the URL has them",
    "enable.auto.commit": "a record is committed once its push is durable",
    "enable.auto.offset.store": "a record is committed once its push is durable",
    "auto.offset.reset": "see --from and --on-gap",
    "enable.partition.eof": "it reads for ever",
    "partition.assignment.strategy": "it is cooperative-sticky, or group.protocol=consumer",
}
_DENIED = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class Place(NamedTuple):
    """A topic: `servers` are HOST:PORT, with commas between."""

    servers: str
    topic: str

    @property
    def url(self) -> str:
        return f"{SCHEME}{self.servers}/{self.topic}"


def place_of(url: str) -> Place:
    """Read `kafka://HOST:PORT,…/TOPIC`. Raises BadInput."""
    found = _URL.fullmatch(url)
    if found is None:
        raise BadInput(
            "the source is not a Kafka topic; give kafka://HOST:PORT/TOPIC, with a comma "
            "between several brokers; users and passwords are settings: --kafka "
            "sasl.username=NAME"
        )
    servers = [one if ":" in one else f"{one}:9092" for one in found[1].split(",") if one]
    return Place(",".join(servers), found[2])


def client_settings(given: Sequence[str]) -> dict[str, str]:
    """Read `NAME=VALUE` settings of librdkafka, where a VALUE `@FILE` is what that file holds.

    Raises BadInput for one that is ours to set, and for a secret that is not in a file.
    """
    settings: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise BadInput(f"--kafka {name[:60]} is not NAME=VALUE, such as security.protocol=ssl")
        if name in _OURS:
            raise BadInput(f"--kafka {name} cannot be set: {_OURS[name]}")
        if value.startswith("@"):
            value = _text_of(name, Path(value[1:]))
        elif _SECRET.search(name):
            raise BadInput(
                f"--kafka {name} would show in the list of processes; put it into a file, and give "
                f"--kafka {name}=@FILE"
            )
        settings[name] = value
    return settings


def _text_of(name: str, path: Path) -> str:
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not text"
        raise BadInput(f"--kafka {name}: {path} cannot be read: {why}") from error


def consumer_settings(place: Place, group: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return all settings of a consumer that gets its offsets from us."""
    settings: dict[str, Any] = {
        "client.id": "pushlane-ingest",
        "log_level": 2,  # what goes wrong is told by a callback, too, and here each time anew
        "group.id": group,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 64 * 1024,
        "topic.metadata.refresh.interval.ms": 5_000,
    }
    if given.get("group.protocol", "classic") == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
        settings["session.timeout.ms"] = 10_000
    settings |= given
    settings["bootstrap.servers"] = place.servers
    settings["enable.auto.commit"] = settings["enable.auto.offset.store"] = False
    settings["auto.offset.reset"] = "error"
    return settings


_OF_CONSUMERS = re.compile(
    r"(group|session|partition\.assignment|enable\.auto|auto\.|isolation|queued|fetch|max\.poll"
    r"|max\.partition|heartbeat|check\.crcs|enable\.partition)"
)


class Topic:
    """A topic as its brokers describe it, asked by a client of its own."""

    def __init__(self, place: Place, settings: Mapping[str, Any]) -> None:
        """Raises BadInput for settings that librdkafka does not have."""
        self._place = place
        self._trouble: KafkaError | None = None
        mine = {n: value for n, value in settings.items() if not _OF_CONSUMERS.match(n)}
        with translated(place):
            self._admin = AdminClient(mine, error_cb=self._on_error, logger=client_log)

    def _on_error(self, error: KafkaError) -> None:
        if self._trouble is None or self._trouble.code() not in _DENIED:
            self._trouble = error

    async def id(self) -> str:
        """Return what tells the topic from one of the same name that is made later.

        Raises SourceChanged where there is none, Denied, and Unreachable.
        """
        with translated(self._place, self):
            found = await asyncio.wrap_future(self._asked())
        return str(found.topic_id)

    def id_now(self) -> str:
        """As `id`, for a thread that may wait."""
        with translated(self._place, self):
            return str(self._asked().result().topic_id)

    def _asked(self) -> Future[Any]:
        name = self._place.topic
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=ASK_S)
        return asked[name]

    def why_silent(self, error: KafkaError) -> KafkaError:
        """Return what the client met before its time was over: a refused certificate, say."""
        self._admin.poll(0)
        met, self._trouble = self._trouble, None
        return met or error


@contextmanager
def translated(place: Place, topic: Topic | None = None) -> Iterator[None]:
    """Turn errors of the client into ours."""
    try:
        yield
    except KafkaException as error:
        found = error.args[0]
        if topic is not None and found.code() in _SILENT:
            found = topic.why_silent(found)
        raise as_ours(place, found) from error


_SILENT = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def as_ours(place: Place, error: KafkaError) -> PushlaneError:
    """Return our error for one of the client's."""
    code, text = error.code(), error.str()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return SourceChanged(
            f"there is no topic {place.topic} at {place.servers}: it was never made, or was "
            "deleted. Make it, or give another one"
        )
    if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
        return BadInput(f"Kafka's client does not take these options: {text}; check --kafka")
    if code in _DENIED or "SSL alert" in text:  # a broker tells of our certificate as TLS does
        return Denied(
            f"Kafka at {place.servers} does not accept our credentials, or we do not accept its "
            f"certificate: {text}. Check --kafka security.protocol, sasl.*, ssl.*, and the ACLs "
            "of topic and group"
        )
    if code == KafkaError.FENCED_INSTANCE_ID:
        return UserError(
            "another process has the same group.instance.id; give each one of its own, such as the "
            "name of its pod"
        )
    if error.fatal():
        return UserError(f"Kafka's client has failed: {text}; start this process again")
    return Unreachable(f"Kafka at {place.servers} does not answer as it should: {text}")
