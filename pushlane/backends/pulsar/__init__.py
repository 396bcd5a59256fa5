"""Lanes on Apache Pulsar: one topic a lane, with the registry on Redis and its journal on Pulsar.

Nothing but this folder knows that the broker is Pulsar; its errors end here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from pushlane.backends.backend import Backend
from pushlane.backends.pulsar.admin import connect_admin
from pushlane.backends.pulsar.broker import PulsarBroker
from pushlane.backends.pulsar.connection import open_connection
from pushlane.backends.pulsar.journal import PulsarJournal
from pushlane.backends.pulsar.policies import JOURNAL_POLICIES, ensure_namespace, lane_policies
from pushlane.backends.pulsar.receipt_log import PulsarReceiptLog
from pushlane.backends.redis import connect_redis, redis_access
from pushlane.settings import Settings

__all__ = ["connect", "connect_receipts"]


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Backend]:
    """Connect to Pulsar and Redis, making the namespaces when they are missing.

    Raises:
        BadInput: a URL or the namespace cannot be used.
        Unreachable: one of the services does not answer; names its URL.
    """
    journal_namespace = f"{settings.namespace}-registry"
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(connect_admin(settings))
        lane_rules = lane_policies(settings)
        await ensure_namespace(admin, settings.namespace, lane_rules)
        await ensure_namespace(admin, journal_namespace, JOURNAL_POLICIES)
        connection = await stack.enter_async_context(open_connection(settings, admin.credentials))
        journal = PulsarJournal(connection, admin, journal_namespace)
        stack.push_async_callback(journal.close)
        broker = PulsarBroker(connection, admin, settings)
        stack.push_async_callback(broker.close)
        redis = await stack.enter_async_context(
            connect_redis(
                settings.redis_url,
                settings.namespace,
                journal,
                ledger_window_s=settings.ledger_window_s,
                recipient_window_s=settings.recipient_window_s,
                access=redis_access(settings),
            )
        )
        receipts = PulsarReceiptLog(connection, admin, settings)
        stack.push_async_callback(receipts.close)
        yield Backend(
            broker,
            redis.registry,
            redis.lease,
            redis.ledger,
            redis.recipient_windows,
            redis.documents,
            receipts,
            redis.presence,
            redis.limiter,
            redis.suppressions,
            redis.dead_addresses,
        )


@asynccontextmanager
async def connect_receipts(settings: Settings) -> AsyncIterator[PulsarReceiptLog]:
    """Open the log of receipts alone: neither the registry nor Redis is asked.

    Raises:
        BadInput: a URL or the namespace cannot be used.
        Unreachable: the broker does not answer; names its URL.
    """
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(connect_admin(settings))
        await ensure_namespace(admin, settings.namespace, lane_policies(settings))
        connection = await stack.enter_async_context(open_connection(settings, admin.credentials))
        receipts = PulsarReceiptLog(connection, admin, settings)
        stack.push_async_callback(receipts.close)
        yield receipts
