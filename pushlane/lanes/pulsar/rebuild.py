"""Compares Redis with the journal, and fills it from there, on an operator's word."""

from __future__ import annotations

from pushlane.backends.pulsar.backup import open_journal
from pushlane.lanes.rebuilding import Beside, RegistryGap
from pushlane.lanes.redis import compare, redis_access, refill
from pushlane.settings import Settings


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
