"""Copies the journal into one file, fills an empty one from it, and compares Redis with it.

A copy holds tasks, weights and documents: what Redis is rebuilt from. It holds no pushes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from pushlane.backends.operations import Beside, RegistryGap
from pushlane.backends.pulsar.admin import connect_admin
from pushlane.backends.pulsar.connection import open_connection
from pushlane.backends.pulsar.journal import PulsarJournal
from pushlane.backends.pulsar.policies import JOURNAL_POLICIES, ensure_namespace
from pushlane.backends.redis import compare, is_task, redis_access, refill
from pushlane.core.errors import BadInput
from pushlane.settings import Settings
from pushlane.util.errors import MissingPermission
from pushlane.util.files import create_durably
from pushlane.util.texts import paged

_FORMAT = 1
_PAGE = 1_000


class _Copy(msgspec.Struct, forbid_unknown_fields=True):
    """A copy of a journal: its records, the oldest append first."""

    pushlane_backup: int
    records: list[tuple[str, bytes]]


async def back_up(settings: Settings, file: Path) -> int:
    """Copy the journal, and return how many tasks it has.

    Raises:
        BadInput: there is no registry, or the file is there already or cannot be written.
        Unreachable: the broker does not answer.
    """
    await _require_registry(settings)
    async with open_journal(settings) as journal:
        records = await journal.replay()
    body = msgspec.msgpack.encode(_Copy(_FORMAT, records))
    try:
        create_durably(file, body, mode=0o600)
    except FileExistsError as error:
        raise BadInput(f"{file} is there already; give another file") from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}; give another") from error
    return _tasks(records)


async def restore(settings: Settings, file: Path) -> int:
    """Fill an empty journal from a copy, and Redis from the journal; return how many tasks it has.

    Cut off, it is repeated as a whole: the records that are there already are the same.

    Raises:
        BadInput: the file is no copy, or the journal holds something else.
        Unreachable: the broker or Redis does not answer.
    """
    records = _read(file)
    async with open_journal(settings) as journal:
        there = await journal.replay()
        if other := set(there) - set(records):
            raise BadInput(
                f"the registry of {settings.namespace} has records that the copy lacks "
                f"({len(other):,}), and is left as it is; give another --namespace"
            )
        for page in paged(records, _PAGE):
            await asyncio.gather(*(journal.append(key, body) for key, body in page))
        await refill(settings.redis_url, settings.namespace, journal, redis_access(settings))
    return _tasks(records)


def _read(file: Path) -> list[tuple[str, bytes]]:
    try:
        copy = msgspec.msgpack.decode(file.read_bytes(), type=_Copy)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise BadInput(f"{file} is not a copy of a registry, or is damaged") from error
    if copy.pushlane_backup != _FORMAT:
        raise BadInput(
            f"{file} has format {copy.pushlane_backup}, this pushlane reads {_FORMAT}; use the "
            "version that made it"
        )
    return copy.records


def _tasks(records: list[tuple[str, bytes]]) -> int:
    return sum(is_task(key) for key, _ in records)


async def _require_registry(settings: Settings) -> None:
    """Raise BadInput where there is none: an empty copy of a wrong name would pass for a good one.

    Who may not look is let through.
    """
    namespace = f"{settings.namespace}-registry"
    async with connect_admin(settings) as admin:
        try:
            path = f"/namespaces/{namespace}"
            found = await admin.find_any(path, f"look for {namespace}", dict[str, Any])
        except MissingPermission:
            return
    if found is None:
        raise BadInput(
            f"there is no registry of {settings.namespace} on {settings.broker}; give another "
            "--namespace or --broker"
        )


@asynccontextmanager
async def open_journal(settings: Settings) -> AsyncIterator[PulsarJournal]:
    """Open the journal alone, and make it where it is missing; Redis is not asked."""
    namespace = f"{settings.namespace}-registry"
    async with connect_admin(settings) as admin:
        await ensure_namespace(admin, namespace, JOURNAL_POLICIES)
        async with open_connection(settings, admin.credentials) as connection:
            journal = PulsarJournal(connection, admin, namespace)
            await journal.open()
            try:
                yield journal
            finally:
                await journal.close()


async def compare_registry(settings: Settings) -> RegistryGap:
    """Say what the journal and Redis have, and change neither.

    Raises:
        Unreachable: the broker or Redis does not answer.
    """
    access = redis_access(settings)
    async with open_journal(settings) as journal:
        return await compare(settings.redis_url, settings.namespace, journal, access)


async def rebuild_registry(settings: Settings, beside: Beside) -> None:
    """Fill Redis from the journal, whether the registry is ready or not.

    Raises:
        RefillRefused: the journal lacks too many of the tasks that Redis has.
        Unreachable: the broker or Redis does not answer.
    """
    access = redis_access(settings)
    async with open_journal(settings) as journal:
        await refill(settings.redis_url, settings.namespace, journal, access, beside)
