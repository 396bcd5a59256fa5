"""Where a stream runs: an embedded store, one on a small disk, an own Pulsar, or a cluster of it.

Services are started once for all rows of a place; each row has a store, or a namespace, of its own.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster import PulsarCluster, pulsar_cluster
from bench.faults.services import Services, own_services, say
from pushlane.core.errors import UserError
from pushlane.settings import Settings, load

EMBEDDED = ("embedded",)
SMALL_DISK = ("embedded on a small disk",)
PULSAR = ("pulsar",)
SYNCED = ("pulsar, disk synced",)
CLUSTER = ("pulsar cluster",)
_SMALL_DISK_BYTES = 48 << 20
_POOL_LANES = 1
_PREFIX = "pushlane-faults-"


class Skipped(Exception):
    """This machine cannot give such a place; says why."""


@dataclass(frozen=True)
class World:
    """`services`, on Pulsar, or the `cluster` may be harmed; `own` reaches them past the harm."""

    place: str
    settings: Settings
    own: Settings
    services: Services | None = None
    cluster: PulsarCluster | None = None


NewWorld = Callable[[], AbstractContextManager[World]]


@contextmanager
def worlds(place: str) -> Iterator[NewWorld]:
    """Makes an empty world whenever it is asked.

    Raises:
        Skipped: not on this machine.
    """
    if place in EMBEDDED:
        yield _embedded
    elif place in SMALL_DISK:
        yield _on_small_disk
    elif place in CLUSTER:
        with _running_cluster() as cluster:
            yield partial(_on_cluster, cluster)
    else:
        synced = {"journalSyncData": "true"} if place in SYNCED else {}
        with ExitStack() as ends:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX)))
            try:
                services = ends.enter_context(own_services(folder, synced))
            except UserError as reason:
                raise Skipped(str(reason)) from reason
            yield partial(_on_pulsar, place, services)


@contextmanager
def _embedded() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        settings = _embedded_settings(Path(folder))
        yield World(EMBEDDED[0], settings, settings)


@contextmanager
def _on_small_disk() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, _small_disk(folder):
        settings = _embedded_settings(Path(folder))
        yield World(SMALL_DISK[0], settings, settings)


@contextmanager
def _small_disk(folder: str) -> Iterator[None]:
    if os.geteuid() != 0:
        raise Skipped("a small disk is mounted by root only")
    options = f"size={_SMALL_DISK_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        raise Skipped(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def _embedded_settings(folder: Path) -> Settings:
    return load({"broker": "embedded", "data_dir": folder, "pool_lanes": _POOL_LANES})


@contextmanager
def _running_cluster() -> Iterator[PulsarCluster]:
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, ExitStack() as ends:
        try:
            yield ends.enter_context(pulsar_cluster(Path(folder), say))
        except UserError as reason:
            raise Skipped(str(reason)) from reason


@contextmanager
def _on_cluster(cluster: PulsarCluster) -> Iterator[World]:
    settings = load(
        {
            "broker": cluster.broker_url,
            "admin_url": cluster.admin_url,
            "redis_url": cluster.redis_url,
            "namespace": _new_namespace(),
            "pool_lanes": _POOL_LANES,
        }
    )
    yield World(CLUSTER[0], settings, settings, cluster=cluster)


def _new_namespace() -> str:
    return f"pushlane/faults-{secrets.token_hex(4)}"


@contextmanager
def _on_pulsar(place: str, services: Services) -> Iterator[World]:
    urls = services.urls
    settings = load(
        {
            "broker": urls.broker,
            "admin_url": urls.admin,
            "redis_url": urls.redis,
            "namespace": _new_namespace(),
            "pool_lanes": _POOL_LANES,
        }
    )
    admin, redis = services.behind
    own = settings.but(**{"admin_url": admin, "redis_url": redis})
    yield World(place, settings, own, services)
