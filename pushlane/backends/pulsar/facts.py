"""What the admin REST and the metrics of a broker say about how it is set up.

Nothing is changed, and nothing is made. Every question has a bound of time, and topics one of
number.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from pushlane.backends.pulsar.admin import Admin, topic_path
from pushlane.backends.pulsar.connection import open_connection
from pushlane.backends.pulsar.policies import namespaces_of
from pushlane.core.errors import Unreachable
from pushlane.settings import Settings
from pushlane.util.checks import Fact, fact_of
from pushlane.util.texts import masked

ANSWER_S = 8.0
CLIENT_S = 12.0
TOPICS_S = 10.0
AT_ONCE = 8
MOST_MEASURED = 1_000
"""Over so many topics the metrics would be too large to ask for, and a sample is looked at."""

_SIZE = "pulsar_storage_size"
_DENIED = (401, 403)
_EARLIEST = "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true"


class Refusal(NamedTuple):
    """A question that the broker refused to answer, and the right that it takes."""

    doing: str
    right: str
    status: int
    namespace: str = ""


class TopicFacts(NamedTuple):
    """The stats and internal stats of a topic."""

    namespace: str
    topic: str
    stats: dict[str, Any]
    internals: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.topic}"

    @property
    def subscriptions(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.stats.get("subscriptions") or {}
        return found


class Web(NamedTuple):
    """The broker's version, and by how many seconds its clock is ahead of ours."""

    version: str
    ahead_s: float


@dataclass
class PulsarFacts:
    """All that was seen; a namespace that is not there has the policies None.

    `web` is what `admin` is, with a short reason where there is none.
    """

    settings: Settings
    client: Fact[None]
    admin: Fact[Web]
    web: Fact[Web]
    configuration: Fact[dict[str, str]]
    bookies: Fact[list[str]]
    brokers: Fact[list[str]]
    policies: dict[str, Fact[dict[str, Any] | None]]
    topics: dict[str, Fact[list[str]]]
    looked_at: list[TopicFacts] = field(default_factory=list)
    bookie: Fact[dict[str, str]] = field(default_factory=lambda: Fact(why_not=NO_BOOKIE))
    refusals: list[Refusal] = field(default_factory=list)

    def measured(self) -> list[TopicFacts]:
        """Return the topics that were looked at. Raises Unseen when they could not be listed."""
        for topics in self.topics.values():
            topics.get()
        return self.looked_at

    def number(self, name: str) -> float:
        """Return a number of the broker's configuration, 0 where it says none."""
        with suppress(ValueError):
            return float(self.configuration.get().get(name, ""))
        return 0.0


_NO_REST = "nothing can be asked of the admin REST"
NO_BOOKIE = "a bookie's settings are not in the admin REST; name its web server with --bookie-url"

SUPERUSER = "superuser"
TENANT_ADMIN = "tenant admin"
CONSUME = "consume"


async def collect(settings: Settings, admin: Admin, most_topics: int, bookie: str) -> PulsarFacts:
    """Ask the broker for all that checks look at, of at most so many topics."""
    asking = _Asking(admin)
    names = list(namespaces_of(settings))
    client, web = await asyncio.gather(
        fact_of(_connect(settings), CLIENT_S, f"Pulsar at {settings.broker}"),
        fact_of(_web(admin), ANSWER_S, f"Pulsar's admin REST at {masked(settings.admin_url)}"),
    )
    asking.why_not = _NO_REST if web.why_not else ""
    configuration, bookies, brokers, bookie_config, *spaces = await asyncio.gather(
        asking.ask("/brokers/configuration/runtime", "read its configuration", SUPERUSER, dict),
        asking.ask("/bookies/all", "list the bookies", SUPERUSER, dict),
        asking.ask("/brokers", "list the brokers", SUPERUSER, list[str]),
        _bookie(bookie),
        *(asking.namespace(name) for name in names),
    )
    facts = PulsarFacts(
        settings=settings,
        client=client,
        admin=web,
        web=Fact(why_not=_NO_REST) if web.why_not else web,
        configuration=_texts(configuration),
        bookies=_named(bookies),
        brokers=brokers,
        policies={name: policies for name, (policies, _) in zip(names, spaces, strict=True)},
        topics={name: topics for name, (_, topics) in zip(names, spaces, strict=True)},
        bookie=bookie_config,
        refusals=asking.refusals,
    )
    facts.looked_at = await _topics(asking, facts, most_topics)
    return facts


class _Asking:
    """Asks the admin REST, unless there is a reason why not, and notes what is refused."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.refusals: list[Refusal] = []
        self.why_not = ""
        self._room = asyncio.Semaphore(AT_ONCE)

    async def ask(
        self, path: str, doing: str, right: str, shape: Any, namespace: str = ""
    ) -> Fact[Any]:
        """Return the value at a path in this shape; None where there is no such thing."""
        if self.why_not:
            return Fact(why_not=self.why_not)
        return await fact_of(self._ask(path, doing, right, shape, namespace), ANSWER_S)

    async def _ask(self, path: str, doing: str, right: str, shape: Any, namespace: str) -> Any:
        async with self._room:
            reply = await self.admin.call("GET", path, doing, allow=(404, *_DENIED))
        if reply.status in _DENIED:
            self.refusals.append(Refusal(doing, right, reply.status, namespace))
            raise Unreachable(f"the broker refuses to {doing} (status {reply.status})")
        try:
            return None if reply.status == 404 else msgspec.convert(reply.value, shape)
        except msgspec.ValidationError as error:
            raise self.admin.garbled(doing) from error

    async def namespace(self, name: str) -> tuple[Fact[Any], Fact[list[str]]]:
        reading, listing = f"read the policies of {name}", f"list the topics of {name}"
        policies, topics = await asyncio.gather(
            self.ask(f"/namespaces/{name}", reading, TENANT_ADMIN, dict, name),
            self.ask(f"/persistent/{name}", listing, CONSUME, list[str], name),
        )
        names = [topic.rpartition("/")[2] for topic in topics.get_or(None) or []]
        return policies, Fact(names, topics.why_not)

    async def topic(self, namespace: str, topic: str) -> TopicFacts | None:
        path, doing = topic_path(namespace, topic), f"measure topics of {namespace}"
        stats, internals = await asyncio.gather(
            self.ask(f"{path}/stats{_EARLIEST}", doing, CONSUME, dict, namespace),
            self.ask(f"{path}/internalStats", doing, CONSUME, dict, namespace),
        )
        if stats.get_or(None) is None:
            return None
        return TopicFacts(namespace, topic, stats.get(), internals.get_or(None) or {})


async def _connect(settings: Settings) -> None:
    async with open_connection(settings):
        return


async def _web(admin: Admin) -> Web:
    before = time.time()
    page = await admin.page("/admin/v2/brokers/version", "ask for its version")
    ours = (before + time.time()) / 2
    version = page.content.decode("ascii", "replace").strip().strip('"')
    try:
        # The header has whole seconds, cut off: on the average half a second is missing.
        return Web(version, parsedate_to_datetime(page.date).timestamp() + 0.5 - ours)
    except (TypeError, ValueError) as error:
        raise admin.garbled("ask for its version") from error


def _texts(configuration: Fact[Any]) -> Fact[dict[str, str]]:
    """Return the values that are there, as texts; a broker that has no such page is a reason."""
    found = configuration.get_or(None)
    why_not = configuration.why_not or ("" if found is not None else "the broker does not show it")
    known = {name: str(value) for name, value in (found or {}).items() if value is not None}
    return Fact(known, why_not)


def _named(bookies: Fact[Any]) -> Fact[list[str]]:
    listed = (bookies.get_or(None) or {}).get("bookies") or []
    named = [str(one.get("bookieId", "")) for one in listed if isinstance(one, dict)]
    return Fact(named, bookies.why_not)


async def _bookie(url: str) -> Fact[dict[str, str]]:
    """Ask a bookie's web server, where there is one, for what was set."""
    if not url:
        return Fact(why_not=NO_BOOKIE)
    async with Admin(url, None) as web:
        found = await fact_of(_bookie_settings(web), ANSWER_S)
    return Fact(why_not=f"no bookie answers at {masked(url)}") if found.why_not else found


async def _bookie_settings(web: Admin) -> dict[str, str]:
    doing = "read the settings of a bookie"
    page = await web.page("/api/v1/config/server_config", doing)
    try:
        found = json.loads(page.content)
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, AttributeError) as error:
        raise web.garbled(doing) from error


async def _topics(asking: _Asking, facts: PulsarFacts, most: int) -> list[TopicFacts]:
    names = [
        (space, topic)
        for space, topics in facts.topics.items()
        for topic in topics.get_or([])
        if not topic.startswith("__")
    ]
    chosen = await _largest(asking.admin, names, most)
    found: list[TopicFacts] = []

    async def look(namespace: str, topic: str) -> None:
        if one := await asking.topic(namespace, topic):
            found.append(one)

    with suppress(TimeoutError):  # what was seen until now does
        async with asyncio.timeout(TOPICS_S), asyncio.TaskGroup() as group:
            for namespace, topic in chosen:
                group.create_task(look(namespace, topic))
    return found


async def _largest(
    admin: Admin, names: Sequence[tuple[str, str]], most: int
) -> Sequence[tuple[str, str]]:
    """Return at most so many topics: those that hold most, or some of all where that is unknown."""
    if len(names) <= most:
        return names
    if len(names) <= MOST_MEASURED:
        page = await fact_of(admin.page("/metrics/", "read its metrics"), ANSWER_S)
        if not page.why_not:
            sizes = sizes_in(page.get().content)
            return sorted(names, key=lambda one: -sizes.get(f"{one[0]}/{one[1]}", 0.0))[:most]
    return names[:: -(-len(names) // most)]


def sizes_in(metrics: bytes) -> dict[str, float]:
    """Return the bytes that topics hold, by namespace/topic, from the metrics of a broker."""
    sizes: dict[str, float] = {}
    for line in metrics.decode("utf-8", "replace").splitlines():
        if line.startswith(f"{_SIZE}{{") and 'topic="persistent://' in line:
            topic = line.partition('topic="persistent://')[2].partition('"')[0]
            with suppress(ValueError):
                sizes[topic] = float(line.rpartition(" ")[2])
    return sizes
