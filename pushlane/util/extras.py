"""Says which extra of pushlane to install where a package of one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pushlane.core.errors import BadInput

_PACKAGES = {
    "google": "google-auth",
    "mcp_types": "mcp",
    "opentelemetry": "opentelemetry-sdk",
}  # whose modules have another name


@contextmanager
def needs_extra(extra: str, what: str = "this") -> Iterator[None]:
    """Import what needs packages of an extra inside this context, and never at the top of a file.

    Raises:
        BadInput: a package is missing; names what needs it, and says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "pushlane":
            raise
        raise BadInput(
            f"{what} needs the package {_PACKAGES.get(missing, missing)}, of the extra `{extra}`: "
            f"pip install 'pushlane[{extra}]' (in a clone: pip install '.[{extra}]')"
        ) from error
