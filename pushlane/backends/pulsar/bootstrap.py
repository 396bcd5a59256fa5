"""Makes tenant, namespaces, topics and permissions, so that processes can run with less than that.

Each thing is looked at first, and made only when it is missing; nothing is ever taken away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pushlane.backends.operations import BootstrapStep, RoleLogin, Roles
from pushlane.backends.pulsar.admin import Admin, connect_admin, topic_path
from pushlane.backends.pulsar.journal import TOPIC as JOURNAL
from pushlane.backends.pulsar.journal import make_journal
from pushlane.backends.pulsar.policies import (
    Policy,
    command_of,
    make_namespace,
    make_tenant,
    namespaces_of,
    require_namespace,
    set_policy,
    unmet,
)
from pushlane.backends.pulsar.receipt_log import TOPIC as RECEIPTS
from pushlane.backends.pulsar.receipt_log import make_receipts
from pushlane.backends.redis.access import redis_logins
from pushlane.settings import Settings

_BOTH = ("produce", "consume")
_DOING = "look at what is there"

Look = Callable[[Admin], Awaitable[bool]]
Make = Callable[[Admin], Awaitable[object]]


class _Wanted(NamedTuple):
    """A thing that is needed, with how to see whether it is there and how to make it."""

    what: str
    command: str
    is_there: Look
    make: Make


async def bootstrap(settings: Settings, roles: Roles, dry_run: bool) -> list[BootstrapStep]:
    """Make what is missing; with `dry_run` only look.

    Raises:
        BadInput: the namespace is not of the form tenant/name.
        MissingPermission: we are no superuser and something of a superuser is missing.
        Unreachable: the admin REST does not answer.
    """
    steps: list[BootstrapStep] = []
    async with connect_admin(settings) as admin:
        for wanted in _plan(settings, roles):
            state: Literal["there", "missing", "made"] = "missing" if dry_run else "made"
            if await wanted.is_there(admin):
                state = "there"
            elif not dry_run:
                await wanted.make(admin)
            steps.append(BootstrapStep(wanted.what, state, wanted.command))
    return steps


def bootstrap_commands(settings: Settings, roles: Roles) -> list[str]:
    """Return all that is needed as commands of pulsar-admin; nobody is asked."""
    return [wanted.command for wanted in _plan(settings, roles)]


def registry_logins(settings: Settings, roles: Roles) -> list[RoleLogin]:
    """Return the roles' lines for the registry's store."""
    return redis_logins(settings.namespace, roles)


def _plan(settings: Settings, roles: Roles) -> Iterator[_Wanted]:
    require_namespace(settings.namespace)
    lanes = settings.namespace
    registry, receipts = f"{lanes}-registry", f"{lanes}-receipts"
    yield _tenant(lanes.split("/")[0], (roles.dispatcher, roles.writer))
    for namespace, rules in namespaces_of(settings).items():
        yield _namespace(namespace)
        for policy in rules:
            yield _policy(namespace, policy)
        for role in (roles.dispatcher, roles.writer):
            yield _grant(namespace, role, _BOTH)
    yield _grant(lanes, roles.pipeline, ("consume",))
    yield _grant(receipts, roles.pipeline, _BOTH)
    yield _topic(
        f"{registry}/{JOURNAL}",
        f"pulsar-admin topics create persistent://{registry}/{JOURNAL}",
        lambda admin: make_journal(admin, registry),
    )
    parts = settings.receipts_partitions
    yield _topic(
        f"{receipts}/{RECEIPTS}",
        f"pulsar-admin topics create-partitioned-topic persistent://{receipts}/{RECEIPTS} "
        f"--partitions {parts}",
        lambda admin: make_receipts(admin, receipts, parts),
        at="/partitions",
    )


def _tenant(tenant: str, roles: Sequence[str]) -> _Wanted:
    """Want the tenant, with these roles among its admins: only they make and drop topics."""
    path = f"/tenants/{tenant}"

    async def found(admin: Admin) -> dict[str, Any] | None:
        return await admin.find_any(path, f"look at tenant {tenant}", dict[str, Any])

    async def is_there(admin: Admin) -> bool:
        known = await found(admin)
        return known is not None and set(roles) <= set(known.get("adminRoles") or ())

    async def make(admin: Admin) -> None:
        known = await found(admin)
        if known is None:
            await make_tenant(admin, tenant, roles)
            return
        kept = known.get("adminRoles") or ()
        body = {**known, "adminRoles": sorted({*kept, *roles})}
        await admin.insist("POST", path, f"give tenant {tenant} its admins", body)

    joined = ",".join(roles)
    return _Wanted(
        f"tenant {tenant} with admins {' and '.join(roles)}",
        f"pulsar-admin tenants create {tenant} --admin-roles {joined}",
        is_there,
        make,
    )


def _namespace(namespace: str) -> _Wanted:
    async def is_there(admin: Admin) -> bool:
        return await _policies(admin, namespace) is not None

    return _Wanted(
        f"namespace {namespace}",
        f"pulsar-admin namespaces create {namespace}",
        is_there,
        lambda admin: make_namespace(admin, namespace),
    )


def _policy(namespace: str, policy: Policy) -> _Wanted:
    async def is_there(admin: Admin) -> bool:
        known = await _policies(admin, namespace)
        return known is not None and not unmet(known, [policy])

    return _Wanted(
        f"{policy.path} of namespace {namespace}",
        command_of(policy, namespace),
        is_there,
        lambda admin: set_policy(admin, namespace, policy),
    )


def _grant(namespace: str, role: str, actions: Sequence[str]) -> _Wanted:
    path = f"/namespaces/{namespace}/permissions"

    async def granted(admin: Admin) -> set[str]:
        known = await admin.find_any(path, _DOING, dict[str, list[str]])
        return set((known or {}).get(role, ()))

    async def is_there(admin: Admin) -> bool:
        return set(actions) <= await granted(admin)

    async def make(admin: Admin) -> None:
        doing = f"let {role} {' and '.join(actions)} in {namespace}"
        body = sorted({*actions, *await granted(admin)})
        await admin.insist("POST", f"{path}/{role}", doing, body)

    return _Wanted(
        f"{role} may {' and '.join(actions)} in {namespace}",
        f"pulsar-admin namespaces grant-permission {namespace} --role {role} "
        f"--actions {','.join(actions)}",
        is_there,
        make,
    )


def _topic(name: str, command: str, make: Make, at: str = "/stats") -> _Wanted:
    namespace, _, topic = name.rpartition("/")
    path = topic_path(namespace, topic) + at

    async def is_there(admin: Admin) -> bool:
        found = await admin.find_any(path, _DOING, dict[str, Any])
        return found is not None and found.get("partitions") != 0

    return _Wanted(f"topic {name}", command, is_there, make)


async def _policies(admin: Admin, namespace: str) -> dict[str, Any] | None:
    return await admin.find_any(f"/namespaces/{namespace}", _DOING, dict[str, Any])
