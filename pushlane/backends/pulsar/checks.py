"""Checks of the broker itself, and of the policies of our namespaces.

Of the broker: its version, its clock, what it lets us do, and its storage. Of the policies: those
that pushlane sets, and those that others may.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

from pushlane.backends.pulsar.facts import CONSUME, NO_BOOKIE, SUPERUSER, TENANT_ADMIN, PulsarFacts
from pushlane.backends.pulsar.policies import Policy, command_of, namespaces_of, unmet
from pushlane.util.checks import Check, Remark, Severity, Unseen, outside
from pushlane.util.files import is_rotational
from pushlane.util.texts import each_host
from pushlane.wire import MOST_BYTES

AREA = "pulsar"
FIX = "pushlane doctor --fix"
EVICTS = "consumer_backlog_eviction"
POLICY, AGE_QUOTA, EXPIRY = "policy", "age-quota", "expiry"
"""The kinds of targets that a fix knows."""

Look = Callable[[PulsarFacts], Iterator[Remark]]


def pulsar_check(name: str, looks_at: str, why: str) -> Callable[[Look], Check[PulsarFacts]]:
    """Make a function a check of this area."""
    return lambda look: Check(name, AREA, looks_at, why, look)


def present(facts: PulsarFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each of our namespaces that is there, with its policies."""
    for name, policies in facts.policies.items():
        found = policies.get()
        if found is not None:
            yield name, found


def _missing(facts: PulsarFacts, key: str) -> Iterator[tuple[str, Any, Policy]]:
    """Return the namespaces that lack a policy of ours, what they have instead, and the policy."""
    wanted = namespaces_of(facts.settings)
    for name, found in present(facts):
        for policy in unmet(found, wanted[name]):
            if policy.key == key:
                yield name, found.get(key), policy


def _ours(
    name: str, key: str, severity: Severity, what: str, looks_at: str, why: str
) -> Check[PulsarFacts]:
    """Make a check of a policy that pushlane sets at each start, and others may have changed."""

    @pulsar_check(name, looks_at, why)
    def look(facts: PulsarFacts) -> Iterator[Remark]:
        for namespace, found, policy in _missing(facts, key):
            shown = f"{namespace}: {what}{_shown(found)}"
            mend = command_of(policy, namespace)
            yield Remark(severity, shown, mend, (POLICY, namespace, policy.key))

    return look


def _shown(found: Any) -> str:
    """Return what a namespace has instead, where that says more than that it is off."""
    if isinstance(found, dict):
        found = ", ".join(f"{name} {value}" for name, value in found.items())
    return f" ({found})" if found not in ("", None, False) else ""


@pulsar_check(
    "delayed-delivery",
    "delayed delivery on the lanes' namespace, and its tick",
    "retries, delays and quiet hours go at once without it, and late with a coarse tick",
)
def _delayed_delivery(facts: PulsarFacts) -> Iterator[Remark]:
    """A coarse tick delays by less than itself; pulsar-admin knows none under a second."""
    for name, found, policy in _missing(facts, "delayed_delivery_policies"):
        is_on = (found or {}).get("active")
        what = "its tick is coarser than pushlane's" if is_on else "delayed delivery is off"
        shown = f"{name}: {what}{_shown(found)}"
        yield Remark("warning" if is_on else "error", shown, FIX, (POLICY, name, policy.key))


@pulsar_check(
    "backlog-quota",
    "backlog quota and its policy; an eviction by size or by age",
    "an eviction drops pushes that wait, without notice; another quota holds up submits",
)
def _backlog_quota(facts: PulsarFacts) -> Iterator[Remark]:
    for name, found, policy in _missing(facts, "backlog_quota_map"):
        kind = (found or {}).get("destination_storage", {})
        evicts = kind.get("policy") == EVICTS
        what = f"{name}: the backlog quota is not as pushlane sets it{_shown(kind)}"
        mend = command_of(policy, name)
        yield Remark("error" if evicts else "warning", what, mend, (POLICY, name, policy.key))
    for name, found in present(facts):
        quotas = found.get("backlog_quota_map", {})
        kept = quotas.get("destination_storage", {})
        is_ours = facts.settings.lane_quota_bytes != "keep" or name != facts.settings.namespace
        if not is_ours and kept.get("policy") == EVICTS:
            what = f"{name}: the oldest pushes of a lane are dropped at its quota{_shown(kept)}"
            limited = f"set-backlog-quota {name} --limit {kept.get('limitSize')}"
            mend = f"pulsar-admin namespaces {limited} --policy producer_exception"
            yield Remark("error", what, mend)
        aged = quotas.get("message_age", {})
        if aged.get("policy") == EVICTS:
            what = f"{name}: pushes that wait for longer than {aged.get('limitTime')} s are dropped"
            mend = f"pulsar-admin namespaces remove-backlog-quota -t message_age {name}"
            yield Remark("error", what, mend, (AGE_QUOTA, name))


@pulsar_check(
    "default-quota",
    "the broker's default quota, where a namespace has none of its own",
    "an eviction would drop tasks from the task topic",
)
def _default_quota(facts: PulsarFacts) -> Iterator[Remark]:
    """Look at the namespaces without a quota of their own: the journal's has the broker's."""
    configuration = facts.configuration.get()
    if configuration.get("backlogQuotaDefaultRetentionPolicy") != EVICTS:
        return
    if all(facts.number(f"backlogQuotaDefaultLimit{of}") <= 0 for of in ("Bytes", "GB", "Second")):
        return
    for name, found in present(facts):
        if not found.get("backlog_quota_map", {}).get("destination_storage"):
            what = f"{name}: the broker's default quota evicts what is not read yet"
            limited = "set-backlog-quota --limit 64G --policy producer_exception"
            yield Remark("error", what, f"pulsar-admin namespaces {limited} {name}")


@pulsar_check(
    "subscription-expiry",
    "expiry of subscriptions that nobody reads by: off",
    "a lane without its subscription has no pushes: they are lost without notice",
)
def _subscription_expiry(facts: PulsarFacts) -> Iterator[Remark]:
    default = facts.configuration.get_or({}).get("subscriptionExpirationTimeMinutes", "0")
    for name, found in present(facts):
        own = found.get("subscription_expiration_time_minutes")
        minutes = int(default) if own is None else own
        if minutes > 0:
            what = f"{name}: a lane that nobody reads for {minutes} minutes loses all its pushes"
            mend = f"pulsar-admin namespaces set-subscription-expiration-time -t 0 {name}"
            yield Remark("error", what, mend, (EXPIRY, name))


@pulsar_check(
    "longest-delay",
    "the longest delay that the broker takes against retry_longest_s",
    "a retry over it cannot be published, and its lane stands still",
)
def _max_delay(facts: PulsarFacts) -> Iterator[Remark]:
    """Look at the lanes' namespace: nothing in the others is delayed."""
    longest_ms = facts.settings.retry_longest_s * 1000
    for name, found in present(facts):
        if name != facts.settings.namespace:
            continue
        own = (found.get("delayed_delivery_policies") or {}).get("maxDeliveryDelayInMillis")
        most_ms = facts.number("delayedDeliveryMaxDelayInMillis") if own is None else own
        if 0 < most_ms < longest_ms:
            longest = f"retry_longest_s is {longest_ms / 1000:g}"
            what = f"{name}: delays are at most {most_ms / 1000:g} s, and {longest}"
            target = (POLICY, name, "delayed_delivery_policies") if own else ()
            yield Remark("error", what, FIX, target)


@pulsar_check("namespaces", "that our namespaces are there", "lanes live in them")
def _not_there(facts: PulsarFacts) -> Iterator[Remark]:
    for name, policies in facts.policies.items():
        if policies.get() is None:
            later = "none: pushlane makes it when it first needs it, which takes a tenant admin"
            yield Remark("note", f"{name} is not there yet", later)


NAMESPACE_CHECKS = (
    _not_there,
    _ours(
        "message-ttl",
        "message_ttl_in_seconds",
        "error",
        "pushes end after a TTL",
        "message TTL of our namespaces: off",
        "a push that waits for longer than the TTL is lost without notice",
    ),
    _backlog_quota,
    _default_quota,
    _subscription_expiry,
    _ours(
        "retention",
        "retention_policies",
        "warning",
        "kept for less than the settings say",
        "retention of our namespaces against retention_s and receipts_retention_s",
        "acked pushes cannot be replayed, and receipts read, for as long as the settings say",
    ),
    _ours(
        "deduplication",
        "deduplicationEnabled",
        "error",
        "deduplication is off",
        "deduplication on the lanes' namespace",
        "a publish that is repeated after a crash, as of a fan-out, would be kept twice",
    ),
    _delayed_delivery,
    _max_delay,
    _ours(
        "auto-creation",
        "autoTopicCreationOverride",
        "warning",
        "topics make themselves",
        "auto-creation of topics in our namespaces: off",
        "a client that reconnects makes a dropped lane again, without its subscription",
    ),
    _ours(
        "inactive-topics",
        "inactive_topic_policies",
        "error",
        "inactive topics are removed otherwise",
        "removal of inactive topics: those without a subscription alone",
        "lanes are removed by pushlane alone; another mode removes one that has pushes",
    ),
    _ours(
        "compaction",
        "compaction_threshold",
        "warning",
        "the task topic has another compaction threshold",
        "compaction of the task topic",
        "the task topic grows for ever, and a rebuild of Redis takes longer each day",
    ),
)

CLIENT = "pulsar-client"
OLDEST_CLIENT, TRIED_CLIENT = (3, 13), (3,)
OLDEST_BROKER, TRIED_BROKER = (3, 0), (4, 0)
CLOCK_S = 2.0
LONG_KEEP_ALIVE_S = 60
LARGEST_BYTES = MOST_BYTES + MOST_BYTES // 16  # a full bundle, with its head
SLOW_EMPTY_READ_MS = 100
SMALL_INDEX_CACHE = 512 * 1024**2
SMALL_READ_AHEAD_MIB = 256

_COMMANDS = {
    SUPERUSER: "run doctor with an operator's token, of a role in superUserRoles of broker.conf",
    TENANT_ADMIN: "pulsar-admin tenants update {tenant} --admin-roles ROLE,OTHERS",
    CONSUME: "pulsar-admin namespaces grant-permission {namespace} --role ROLE "
    "--actions produce,consume",
}
_CREDENTIALS = "check the credentials in the settings: pulsar_… in docs/security.md"
_LOCAL_STORES = ("rocksdb:", "memory:")


@pulsar_check("broker", "that the broker answers the client", "without it no push moves")
def _reached(facts: PulsarFacts) -> Iterator[Remark]:
    if why := facts.client.why_not:
        refused = "Authentication" in why or "Authorization" in why
        where = "check --broker / PUSHLANE_BROKER, or for development: pushlane up"
        yield Remark("error", why, _CREDENTIALS if refused else where)


@pulsar_check(
    "admin-rest", "that the admin REST answers", "lanes are made, measured and removed through it"
)
def _admin(facts: PulsarFacts) -> Iterator[Remark]:
    if why := facts.admin.why_not:
        refused = "status 401" in why or "status 403" in why
        where = "check --admin-url / PUSHLANE_ADMIN_URL"
        yield Remark("error", why, _CREDENTIALS if refused else where)


@pulsar_check("broker-version", "the broker's version: 3.0 to 4.0", "others were not tried")
def _version(facts: PulsarFacts) -> Iterator[Remark]:
    yield from outside("the broker", facts.web.get().version, OLDEST_BROKER, TRIED_BROKER)


@pulsar_check(
    "client-version",
    "the client's version: 3.13 to 3.x",
    "older ones stop reading a lane for good when its topic moves at the wrong moment",
)
def _client(_: PulsarFacts) -> Iterator[Remark]:
    try:
        yield from outside(CLIENT, version(CLIENT), OLDEST_CLIENT, TRIED_CLIENT)
    except PackageNotFoundError:
        yield Remark("error", f"{CLIENT} is not installed", f"pip install '{CLIENT}>=3.13,<4'")


@pulsar_check(
    "broker-clock",
    f"the broker's clock against ours: less than {CLOCK_S:g} s apart",
    "delays, expiries and replays by time are off by as much",
)
def _clock(facts: PulsarFacts) -> Iterator[Remark]:
    ahead_s = facts.web.get().ahead_s
    if abs(ahead_s) >= CLOCK_S:
        whose = "ahead of" if ahead_s > 0 else "behind"
        what = f"the broker's clock is {abs(ahead_s):.0f} s {whose} this host's"
        yield Remark("warning", what, "timedatectl set-ntp true, on the host that is off")


@pulsar_check(
    "permissions",
    "what the broker refuses us, by right",
    "lanes cannot be made, or checks not be made",
)
def _permissions(facts: PulsarFacts) -> Iterator[Remark]:
    tenant = facts.settings.namespace.split("/")[0]
    told = set()
    for doing, right, status, namespace in facts.refusals:
        command = _COMMANDS[right].format(tenant=tenant, namespace=namespace)
        if command in told:
            continue
        told.add(command)
        what = f"the right `{right}` is missing: the broker refuses to {doing} (status {status})"
        yield Remark("note" if right == SUPERUSER else "error", what, command)


@pulsar_check(
    "bookie",
    "whether the bookie of --bookie-url answers",
    "only the bookie knows its own settings",
)
def _bookie_answers(facts: PulsarFacts) -> Iterator[Remark]:
    if facts.bookie.why_not not in ("", NO_BOOKIE):
        mend = "give --bookie-url http://HOST:8000 of a bookie with httpServerEnabled=true"
        yield Remark("error", facts.bookie.why_not, mend)


@pulsar_check(
    "journal-sync",
    "whether bookies wait for their disks (journalSyncData)",
    "a power cut takes pushes that were acknowledged",
)
def _journal_sync(facts: PulsarFacts) -> Iterator[Remark]:
    store = facts.configuration.get().get("metadataStoreUrl", "")
    said = facts.bookie.get_or({}).get("journalSyncData")
    if said == "false":
        what = "the bookie does not wait for its disk: journalSyncData=false"
        yield Remark("error", what, "set journalSyncData=true in bookkeeper.conf")
    elif said is None and store.startswith(_LOCAL_STORES):
        yield Remark(
            "warning",
            "the broker is a standalone one, whose journalSyncData is false unless it was changed",
            "set journalSyncData=true in standalone.conf, or run bookies",
        )
    elif said is None:
        facts.bookie.get()


@pulsar_check(
    "journal-device",
    "`journalDirectories` and `ledgerDirectories` on devices of their own, the former on an SSD "
    "(with --bookie-url, on the bookie's host)",
    "reads of old pushes, or the head of a disk, slow down every publish",
)
def _journal_device(facts: PulsarFacts) -> Iterator[Remark]:
    said = facts.bookie.get()
    journals = _devices(said.get("journalDirectories") or said.get("journalDirectory", ""))
    ledgers = _devices(said.get("ledgerDirectories", ""))
    for device, folder in journals.items():
        if is_rotational(device):
            yield Remark(
                "warning",
                f"BookKeeper's journal in {folder} is on a rotating disk, and slows publishes",
                "put journalDirectories on an SSD in bookkeeper.conf",
            )
    for device in journals.keys() & ledgers.keys():
        yield Remark(
            "warning",
            f"BookKeeper's journal in {journals[device]} is on the device of the ledgers, "
            f"{ledgers[device]}",
            "put journalDirectories on a disk of its own in bookkeeper.conf",
        )


def _devices(folders: str) -> dict[int, str]:
    """Return folders by their devices. Raises Unseen where they are not on this host."""
    try:
        named = [part.strip() for part in folders.strip("[]").split(",")]
        return {os.stat(folder).st_dev: folder for folder in named}
    except OSError as error:
        raise Unseen(f"the bookie's folder {error.filename} is not on this host") from error


@pulsar_check(
    "index-cache",
    "dbStorage_rocksDB_blockCacheSize, dbStorage_readAheadCacheMaxSizeMb (with --bookie-url)",
    "an index that is larger than its cache is read from disk for each old push, and many lanes "
    "that are read at once push each other out of a small read-ahead cache",
)
def _index_cache(facts: PulsarFacts) -> Iterator[Remark]:
    name = "dbStorage_rocksDB_blockCacheSize"
    said = facts.bookie.get().get(name, "")
    if not said.strip():
        what = f"{name} is not set: a tenth of the bookie's direct memory"
        mend = f"set {name} in bookkeeper.conf to the size of the ledgers' index"
        yield Remark("note", what, mend)
    elif said.isdigit() and int(said) <= SMALL_INDEX_CACHE:
        what = f"{name} is {int(said) // 1024**2} MiB: too small for an index of many topics"
        mend = f"set {name} in bookkeeper.conf to {2 * SMALL_INDEX_CACHE} or more"
        yield Remark("warning", what, mend)
    name = "dbStorage_readAheadCacheMaxSizeMb"
    said = facts.bookie.get().get(name, "")
    if said.isdigit() and 0 < int(said) < SMALL_READ_AHEAD_MIB:
        what = f"{name} is {said}: {SMALL_READ_AHEAD_MIB} MiB hold what many lanes read ahead"
        mend = f"leave {name} out of bookkeeper.conf: a quarter of the bookie's direct memory"
        yield Remark("warning", what, mend)


@pulsar_check(
    "metadata-root",
    "the metadata store's root path",
    "two clusters in one root mix up their namespaces and ledgers",
)
def _metadata_root(facts: PulsarFacts) -> Iterator[Remark]:
    url = facts.configuration.get().get("metadataStoreUrl", "")
    if url.startswith("zk:") and "/" not in url.removeprefix("zk:").lstrip("/"):
        what = f"metadata is kept in the root of {url}"
        mend = "give the next cluster a root of its own (metadataStoreUrl=zk:HOSTS/NAME)"
        yield Remark("note", what, mend)


@pulsar_check(
    "empty-reads",
    "managedLedgerNewEntriesCheckDelayInMillis",
    "the first push of a lane that was empty waits for as long",
)
def _empty_reads(facts: PulsarFacts) -> Iterator[Remark]:
    name = "managedLedgerNewEntriesCheckDelayInMillis"
    delay_ms = facts.number(name)
    if delay_ms >= SLOW_EMPTY_READ_MS:
        what = f"{name} is {delay_ms:g}: a lane that was empty is looked at again only then"
        yield Remark("warning", what, f"set {name}=10 in broker.conf")


@pulsar_check(
    "message-size",
    "maxMessageSize against the largest message of ours",
    "a larger message is refused, and its submit stands still",
)
def _message_size(facts: PulsarFacts) -> Iterator[Remark]:
    most = facts.number("maxMessageSize")
    if 0 < most < LARGEST_BYTES:
        yield Remark(
            "error",
            f"maxMessageSize is {most:,.0f} bytes, and messages of ours may have {LARGEST_BYTES:,}",
            "set maxMessageSize=5242880 in broker.conf, nettyMaxFrameSizeBytes of bookies over it",
        )


@pulsar_check(
    "keep-alive",
    f"keepAliveIntervalSeconds: {LONG_KEEP_ALIVE_S} at most",
    "the pushes of a process that is frozen or cut off come to others only then",
)
def _keep_alive(facts: PulsarFacts) -> Iterator[Remark]:
    name = "keepAliveIntervalSeconds"
    kept_s = facts.number(name)
    if kept_s > LONG_KEEP_ALIVE_S:
        what = f"{name} is {kept_s:g}: a frozen process keeps its pushes for as long"
        yield Remark("warning", what, f"set {name}=30 in broker.conf")


@pulsar_check(
    "dedup-window",
    "dedup_window_s against how long the broker remembers producers",
    "a submit that goes on late would put pushes on its lane twice",
)
def _dedup_memory(facts: PulsarFacts) -> Iterator[Remark]:
    name = "brokerDeduplicationProducerInactivityTimeoutMinutes"
    kept_s = facts.number(name) * 60
    window_s = facts.settings.dedup_window_s
    if 0 < kept_s <= window_s:
        yield Remark(
            "error",
            f"dedup_window_s is {window_s:g}, and the broker forgets producers after {kept_s:g} s",
            f"set dedup_window_s under {kept_s:g}, or {name} higher in broker.conf",
        )


@pulsar_check(
    "token-in-clear",
    "tokens over connections without TLS",
    "whoever sees the traffic can do what we can",
)
def _transport(facts: PulsarFacts) -> Iterator[Remark]:
    settings = facts.settings
    tokens = settings.pulsar_token, settings.pulsar_token_file, settings.pulsar_oauth2_issuer_url
    if not any(tokens):
        return
    places = ("broker", settings.broker, "pulsar"), ("admin_url", settings.admin_url, "http")
    for name, url, plain in places:
        parts = urlsplit(each_host(url)[0])
        if parts.scheme == plain and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            what = f"{name} is {plain}://: the token travels in the clear"
            yield Remark("warning", what, f"use {plain}{'+ssl' if plain == 'pulsar' else 's'}://")


_OF_ACCESS = (_reached, _admin, _permissions, _version, _client, _clock, _transport)
_OF_BROKERS = (_dedup_memory, _empty_reads, _message_size, _keep_alive)
_OF_BOOKIES = (_bookie_answers, _journal_sync, _journal_device, _index_cache, _metadata_root)
BROKER_CHECKS = (*_OF_ACCESS, *_OF_BROKERS, *_OF_BOOKIES)
