"""Checks of the broker itself: its version, its clock, what it lets us do, and its storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from pushlane.backends.pulsar.facts import CONSUME, NO_BOOKIE, SUPERUSER, TENANT_ADMIN, PulsarFacts
from pushlane.lanes.pulsar.namespace_checks import pulsar_check
from pushlane.lanes.urls import each_host
from pushlane.util.checks import Remark, Unseen, outside
from pushlane.wire import MOST_BYTES

CLIENT = "pulsar-client"
OLDEST_CLIENT, TRIED_CLIENT = (3, 13), (3,)
OLDEST_BROKER, TRIED_BROKER = (3, 0), (4, 0)
CLOCK_S = 2.0
LONG_KEEP_ALIVE_S = 60
LARGEST_BYTES = MOST_BYTES + MOST_BYTES // 16  # a full bundle, with its head
SLOW_EMPTY_READ_MS = 100
SMALL_INDEX_CACHE = 256 * 1024**2

_COMMANDS = {
    SUPERUSER: "run doctor with an operator's token, of a role in superUserRoles of broker.conf",
    TENANT_ADMIN: "pulsar-admin tenants update {tenant} --admin-roles ROLE,OTHERS",
    CONSUME: "pulsar-admin namespaces grant-permission {namespace} --role ROLE "
    "--actions produce,consume",
}
_CREDENTIALS = "check the settings that say who we are: pulsar_… in docs/security.md"
_LOCAL_STORES = ("rocksdb:", "memory:")


def _reached(facts: PulsarFacts) -> Iterator[Remark]:
    if why := facts.client.why_not:
        refused = "Authentication" in why or "Authorization" in why
        where = "check --broker / PUSHLANE_BROKER, or for development: pushlane up"
        yield Remark("error", why, _CREDENTIALS if refused else where)


def _admin(facts: PulsarFacts) -> Iterator[Remark]:
    if why := facts.admin.why_not:
        refused = "status 401" in why or "status 403" in why
        yield Remark(
            "error", why, _CREDENTIALS if refused else "check --admin-url / PUSHLANE_ADMIN_URL"
        )


def _version(facts: PulsarFacts) -> Iterator[Remark]:
    yield from outside("the broker", facts.web.get().version, OLDEST_BROKER, TRIED_BROKER)


def _client(_: PulsarFacts) -> Iterator[Remark]:
    try:
        yield from outside(CLIENT, version(CLIENT), OLDEST_CLIENT, TRIED_CLIENT)
    except PackageNotFoundError:
        yield Remark("error", f"{CLIENT} is not installed", f"pip install '{CLIENT}>=3.13'")


def _clock(facts: PulsarFacts) -> Iterator[Remark]:
    ahead_s = facts.web.get().ahead_s
    if abs(ahead_s) >= CLOCK_S:
        whose = "ahead of" if ahead_s > 0 else "behind"
        what = f"the broker's clock is {abs(ahead_s):.0f} s {whose} this host's"
        yield Remark("warning", what, "timedatectl set-ntp true, on the host that is off")


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


def _bookie_answers(facts: PulsarFacts) -> Iterator[Remark]:
    if facts.bookie.why_not not in ("", NO_BOOKIE):
        mend = "give --bookie-url http://HOST:8000 of a bookie with httpServerEnabled=true"
        yield Remark("error", facts.bookie.why_not, mend)


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


def _journal_device(facts: PulsarFacts) -> Iterator[Remark]:
    said = facts.bookie.get()
    journals = _devices(said.get("journalDirectories") or said.get("journalDirectory", ""))
    ledgers = _devices(said.get("ledgerDirectories", ""))
    for device in journals.keys() & ledgers.keys():
        yield Remark(
            "warning",
            f"the journal in {journals[device]} is on the device of the ledgers, {ledgers[device]}",
            "put journalDirectories on a disk of its own in bookkeeper.conf",
        )


def _devices(folders: str) -> dict[int, str]:
    """Return folders by their devices. Raises Unseen where they are not on this host."""
    try:
        named = [part.strip() for part in folders.strip("[]").split(",")]
        return {os.stat(folder).st_dev: folder for folder in named}
    except OSError as error:
        raise Unseen(f"the bookie's folder {error.filename} is not on this host") from error


def _index_cache(facts: PulsarFacts) -> Iterator[Remark]:
    name = "dbStorage_rocksDB_blockCacheSize"
    said = facts.bookie.get().get(name, "")
    if not said.strip():
        yield Remark(
            "note",
            f"{name} is not set: a tenth of the bookie's direct memory",
            f"set {name} in bookkeeper.conf to the size of the ledgers' index",
        )
    elif said.isdigit() and int(said) < SMALL_INDEX_CACHE:
        yield Remark(
            "warning",
            f"{name} is {int(said) // 1024**2} MiB",
            f"set {name} in bookkeeper.conf to {SMALL_INDEX_CACHE} or more",
        )


def _metadata_root(facts: PulsarFacts) -> Iterator[Remark]:
    url = facts.configuration.get().get("metadataStoreUrl", "")
    if url.startswith("zk:") and "/" not in url.removeprefix("zk:").lstrip("/"):
        yield Remark(
            "note",
            f"metadata is kept in the root of {url}",
            "give the next cluster a root of its own (metadataStoreUrl=zk:HOSTS/NAME)",
        )


def _empty_reads(facts: PulsarFacts) -> Iterator[Remark]:
    name = "managedLedgerNewEntriesCheckDelayInMillis"
    delay_ms = facts.number(name)
    if delay_ms >= SLOW_EMPTY_READ_MS:
        what = f"{name} is {delay_ms:g}: a lane that was empty is looked at again only then"
        yield Remark("warning", what, f"set {name}=10 in broker.conf")


def _message_size(facts: PulsarFacts) -> Iterator[Remark]:
    most = facts.number("maxMessageSize")
    if 0 < most < LARGEST_BYTES:
        yield Remark(
            "error",
            f"maxMessageSize is {most:,.0f} bytes, and messages of ours may have {LARGEST_BYTES:,}",
            "set maxMessageSize=5242880 in broker.conf, nettyMaxFrameSizeBytes of bookies over it",
        )


def _keep_alive(facts: PulsarFacts) -> Iterator[Remark]:
    name = "keepAliveIntervalSeconds"
    kept_s = facts.number(name)
    if kept_s > LONG_KEEP_ALIVE_S:
        what = f"{name} is {kept_s:g}: a frozen process keeps its pushes for as long"
        yield Remark("warning", what, f"set {name}=30 in broker.conf")


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


def _transport(facts: PulsarFacts) -> Iterator[Remark]:
    settings = facts.settings
    if not (
        settings.pulsar_token or settings.pulsar_token_file or settings.pulsar_oauth2_issuer_url
    ):
        return
    for name, url, plain in (
        ("broker", settings.broker, "pulsar"),
        ("admin_url", settings.admin_url, "http"),
    ):
        parts = urlsplit(each_host(url)[0])
        if parts.scheme == plain and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            what = f"{name} is {plain}://: the token travels in the clear"
            yield Remark("warning", what, f"use {plain}{'+ssl' if plain == 'pulsar' else 's'}://")


CHECKS = (
    pulsar_check(
        "broker", "that the broker answers the client", "without it no push moves", _reached
    ),
    pulsar_check(
        "admin-rest",
        "that the admin REST answers",
        "lanes are made, measured and removed through it",
        _admin,
    ),
    pulsar_check(
        "permissions",
        "what the broker refuses us, by right",
        "lanes cannot be made, or checks not be made",
        _permissions,
    ),
    pulsar_check(
        "broker-version", "the broker's version: 3.0 to 4.0", "others were not tried", _version
    ),
    pulsar_check(
        "client-version",
        "the client's version: 3.13 to 3.x",
        "older ones stop reading a lane for good when its topic moves at the wrong moment",
        _client,
    ),
    pulsar_check(
        "broker-clock",
        f"the broker's clock against ours: less than {CLOCK_S:g} s apart",
        "delays, expiries and replays by time are off by as much",
        _clock,
    ),
    pulsar_check(
        "token-in-clear",
        "tokens over connections without TLS",
        "whoever sees the traffic can do what we can",
        _transport,
    ),
    pulsar_check(
        "dedup-window",
        "dedup_window_s against how long the broker remembers producers",
        "a submit that goes on late would put pushes on its lane twice",
        _dedup_memory,
    ),
    pulsar_check(
        "empty-reads",
        "managedLedgerNewEntriesCheckDelayInMillis",
        "the first push of a lane that was empty waits for as long",
        _empty_reads,
    ),
    pulsar_check(
        "message-size",
        "maxMessageSize against the largest message of ours",
        "a larger message is refused, and its submit stands still",
        _message_size,
    ),
    pulsar_check(
        "keep-alive",
        f"keepAliveIntervalSeconds: {LONG_KEEP_ALIVE_S} at most",
        "the pushes of a process that is frozen or cut off come to others only then",
        _keep_alive,
    ),
    pulsar_check(
        "bookie",
        "whether the bookie of --bookie-url answers",
        "what a bookie was set to is known to itself alone",
        _bookie_answers,
    ),
    pulsar_check(
        "journal-sync",
        "whether bookies wait for their disks (journalSyncData)",
        "a power cut takes pushes that were acknowledged",
        _journal_sync,
    ),
    pulsar_check(
        "journal-device",
        "journal and ledgers on devices of their own (with --bookie-url, on the bookie's host)",
        "reads of old pushes slow down every publish",
        _journal_device,
    ),
    pulsar_check(
        "index-cache",
        "dbStorage_rocksDB_blockCacheSize (with --bookie-url)",
        "an index that is larger than its cache is read from disk for each old push",
        _index_cache,
    ),
    pulsar_check(
        "metadata-root",
        "the metadata store's root path",
        "two clusters in one root mix up their namespaces and ledgers",
        _metadata_root,
    ),
)
