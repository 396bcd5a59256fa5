"""What a user reads who looks where there is no embedded store."""

from __future__ import annotations

import getpass
import os

from pushlane.core.errors import NoStore
from pushlane.settings import Settings, default_data_dir

_MADE = "`pushlane submit` makes a store there"


def no_store(settings: Settings) -> NoStore:
    """Return the error that names the folder, and says what to set and what makes a store."""
    what, mend = missing_store(settings)
    return NoStore(f"{what}: {mend}")


def missing_store(settings: Settings) -> tuple[str, str]:
    """Return what is missing, and what mends that."""
    what = f"there is no pushlane store {settings.place}"
    if settings.data_dir != default_data_dir():
        return what, f"check --data-dir and PUSHLANE_DATA_DIR; {_MADE}"
    return (
        f"{what} (the default of user {_user()})",
        "if a service of another user has it, give --data-dir DIR or set PUSHLANE_DATA_DIR=DIR; "
        f"{_MADE}",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())
