"""`bootstrap` makes what a broker needs for pushlane, with a role for each kind of process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from pushlane.backends.operations import BootstrapStep, Roles
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, option, switch
from pushlane.cli.render import Column, print_json, print_table
from pushlane.core.errors import BadInput
from pushlane.settings import Settings
from pushlane.settings.adapters import package_of

_COLUMNS: tuple[Column[BootstrapStep], ...] = (
    Column("STATE", lambda step: step.state),
    Column("WHAT", lambda step: step.what, elastic=True),
)
_DEFAULT = Roles()


@dataclass(frozen=True)
class RoleFlags:
    """The names of the roles."""

    dispatcher_role: Annotated[str, option("ROLE", "Role of dispatchers.")] = _DEFAULT.dispatcher
    writer_role: Annotated[str, option("ROLE", "Role of submit, producers, rules and alerts.")] = (
        _DEFAULT.writer
    )
    pipeline_role: Annotated[str, option("ROLE", "Role of `pipeline run`.")] = _DEFAULT.pipeline

    def roles(self) -> Roles:
        """Return the roles. Raises BadInput when a name cannot be used."""
        roles = Roles(self.dispatcher_role, self.writer_role, self.pipeline_role)
        roles.check()
        return roles


def bootstrap(
    flags: Flags,
    names: RoleFlags,
    dry_run: Annotated[
        bool, switch("--dry-run", "Only say what is missing; change nothing.")
    ] = False,
    print_: Annotated[
        bool, switch("--print", "Print commands for an administrator; ask and change nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make tenant, namespaces, topics and permissions on Pulsar, as far as they are missing.

    Run it with an administrator's credentials: a superuser's for a new tenant, else an admin's of
    the tenant. The others then run with a role each (docs/security.md).
    """
    settings, roles = flags.settings(), names.roles()
    if settings.capabilities.is_local:
        raise BadInput(
            "bootstrap is for a broker: the embedded store needs none; give --broker pulsar://…"
        )
    package = import_module(f"{package_of(settings)}.bootstrap")
    if print_:
        _print_commands(package, settings, roles, as_json)
        return
    steps: list[BootstrapStep] = asyncio.run(package.bootstrap(settings, roles, dry_run))
    if as_json:
        print_json([step._asdict() for step in steps])
        return
    print_table(_COLUMNS, steps)
    note(_summary(steps, dry_run))


def _summary(steps: list[BootstrapStep], dry_run: bool) -> str:
    there = sum(step.state == "there" for step in steps)
    rest = len(steps) - there
    if dry_run:
        return f"{there} there, {rest} missing; without --dry-run they are made"
    return (
        f"{there} there, {rest} made; `pushlane bootstrap --print` has the lines for Redis, "
        "docs/security.md says which process gets which role"
    )


def _print_commands(package: Any, settings: Settings, roles: Roles, as_json: bool) -> None:
    commands: list[str] = package.bootstrap_commands(settings, roles)
    logins: list[str] = [login.line for login in package.registry_logins(settings, roles)]
    if as_json:
        print_json({"pulsar": commands, "redis": logins})
        return
    typer.echo("# Pulsar: with a superuser's credentials; what is there already is refused")
    typer.echo("\n".join(commands))
    typer.echo("# Redis: in redis-cli as an administrator; put a password in place of PASSWORD")
    typer.echo("\n".join(logins))
