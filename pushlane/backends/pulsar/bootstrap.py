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

_Make = Callable[[Admin, Any], Awaitable[object]]


class _Wanted(NamedTuple):
    """A thing that is needed: where to look, whether what is there does, and how it is made.

    `make` gets what was found, None where nothing is there.
    """

    what: str
    command: str
    path: str
    is_enough: Callable[[Any], bool]
    make: _Make
    doing: str = "look at what is there"
    shape: Any = dict[str, Any]


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
            found = await admin.find_any(wanted.path, wanted.doing, wanted.shape)
            if found is not None and wanted.is_enough(found):
                state = "there"
            elif not dry_run:
                await wanted.make(admin, found)
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
        lambda admin, _: make_journal(admin, registry),
    )
    parts = settings.receipts_partitions
    yield _topic(
        f"{receipts}/{RECEIPTS}",
        f"pulsar-admin topics create-partitioned-topic persistent://{receipts}/{RECEIPTS} "
        f"--partitions {parts}",
        lambda admin, _: make_receipts(admin, receipts, parts),
        at="/partitions",
    )


def _tenant(tenant: str, roles: Sequence[str]) -> _Wanted:
    """Want the tenant, with these roles among its admins: only they make and drop topics."""
    path = f"/tenants/{tenant}"

    async def make(admin: Admin, known: dict[str, Any] | None) -> None:
        if known is None:
            await make_tenant(admin, tenant, roles)
            return
        body = {**known, "adminRoles": sorted({*(known.get("adminRoles") or ()), *roles})}
        await admin.insist("POST", path, f"give tenant {tenant} its admins", body)

    return _Wanted(
        f"tenant {tenant} with admins {' and '.join(roles)}",
        f"pulsar-admin tenants create {tenant} --admin-roles {','.join(roles)}",
        path,
        lambda known: set(roles) <= set(known.get("adminRoles") or ()),
        make,
        f"look at tenant {tenant}",
    )


def _namespace(namespace: str) -> _Wanted:
    return _Wanted(
        f"namespace {namespace}",
        f"pulsar-admin namespaces create {namespace}",
        f"/namespaces/{namespace}",
        lambda _: True,
        lambda admin, _: make_namespace(admin, namespace),
    )


def _policy(namespace: str, policy: Policy) -> _Wanted:
    return _Wanted(
        f"{policy.path} of namespace {namespace}",
        command_of(policy, namespace),
        f"/namespaces/{namespace}",
        lambda known: not unmet(known, [policy]),
        lambda admin, _: set_policy(admin, namespace, policy),
    )


def _grant(namespace: str, role: str, actions: Sequence[str]) -> _Wanted:
    path, may = f"/namespaces/{namespace}/permissions", f"{role} may {' and '.join(actions)}"

    async def make(admin: Admin, known: dict[str, list[str]] | None) -> None:
        doing = f"let {role} {' and '.join(actions)} in {namespace}"
        body = sorted({*actions, *(known or {}).get(role, ())})
        await admin.insist("POST", f"{path}/{role}", doing, body)

    return _Wanted(
        f"{may} in {namespace}",
        f"pulsar-admin namespaces grant-permission {namespace} --role {role} "
        f"--actions {','.join(actions)}",
        path,
        lambda known: set(actions) <= set(known.get(role, ())),
        make,
        shape=dict[str, list[str]],
    )


def _topic(name: str, command: str, make: _Make, at: str = "/stats") -> _Wanted:
    namespace, _, topic = name.rpartition("/")
    path = topic_path(namespace, topic) + at
    return _Wanted(f"topic {name}", command, path, lambda known: known.get("partitions") != 0, make)
