"""Where a stream runs: an empty embedded store, one on a small disk of its own, or an own Pulsar.

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

from bench.faults.services import Services, own_services
from pushlane.lanes.errors import UserError
from pushlane.lanes.settings import Settings, load

EMBEDDED = ("embedded",)
SMALL_DISK = ("embedded on a small disk",)
PULSAR = ("pulsar",)
SYNCED = ("pulsar, journal synced",)
_SMALL_DISK_BYTES = 48 << 20
_POOL_LANES = 1
_PREFIX = "pushlane-faults-"


class Skipped(Exception):
    """This machine cannot give such a place; says why."""


@dataclass(frozen=True)
class World:
    """`services` may be harmed, on Pulsar; `own` is how we reach them past the harm."""

    place: str
    settings: Settings
    own: Settings
    services: Services | None = None


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
def _on_pulsar(place: str, services: Services) -> Iterator[World]:
    urls = services.urls
    settings = load(
        {
            "broker": urls.broker,
            "admin_url": urls.admin,
            "redis_url": urls.redis,
            "namespace": f"pushlane/faults-{secrets.token_hex(4)}",
            "pool_lanes": _POOL_LANES,
        }
    )
    admin, redis = services.behind
    own = settings.but(**{"admin_url": admin, "redis_url": redis})
    yield World(place, settings, own, services)
