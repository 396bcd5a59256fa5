"""The embedded store is no copy: it is never rebuilt, and says so."""

from __future__ import annotations

from pushlane.core.errors import UserError
from pushlane.lanes.rebuilding import Beside, RegistryGap
from pushlane.settings import Settings


async def compare_registry(settings: Settings) -> RegistryGap:
    """Refuse to. Raises UserError."""
    raise _nothing_to_rebuild(settings)


async def rebuild_registry(settings: Settings, beside: Beside) -> None:
    """Refuse to. Raises UserError."""
    raise _nothing_to_rebuild(settings)


def _nothing_to_rebuild(settings: Settings) -> UserError:
    return UserError(
        f"there is nothing to rebuild: the embedded store in {settings.data_dir} is one file, and "
        "no copy of anything; `pushlane doctor` looks whether it is whole, and `pushlane restore` "
        "puts a copy in place. For a registry in Redis give --broker pulsar://HOST:PORT"
    )
