"""The words between `pushlane bootstrap` and the adapter that carries it out."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pushlane.core.errors import BadInput

_ROLE = re.compile(r"[\w.@=:/+-]{1,128}", re.ASCII)


class Roles(NamedTuple):
    """The names that dispatchers, writers and the pipeline have towards broker and registry."""

    dispatcher: str = "pushlane-dispatcher"
    writer: str = "pushlane-writer"
    pipeline: str = "pushlane-pipeline"

    def check(self) -> None:
        """Raise BadInput for a name that cannot be one, or stands for two roles."""
        for field, name in self._asdict().items():
            if not _ROLE.fullmatch(name):
                raise BadInput(
                    f"--{field}-role {name!r} is no name of a role: use letters, digits and ._@-"
                )
        if len(set(self)) < len(self):
            raise BadInput("one name stands for two roles: give each its own")


class BootstrapStep(NamedTuple):
    """A thing that pushlane needs: what it is, how it is, and the command that makes it."""

    what: str
    state: Literal["there", "missing", "made"]
    command: str


class RoleLogin(NamedTuple):
    """A role's line for the registry's store, which an administrator gives a password."""

    role: str
    line: str
