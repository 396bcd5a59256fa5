"""Tells what to install when a command needs more than the base installation.

Such a command imports its part of the pipeline inside this context, never at the top of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pushlane.lanes.errors import BadInput


@contextmanager
def pipeline_extra() -> Iterator[None]:
    """Import the pipeline inside this context. Raises BadInput when a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "pushlane":
            raise
        raise BadInput(
            f"this needs the package {missing}, of the extra `pipeline`: "
            "pip install 'pushlane[pipeline]' (in a clone: pip install '.[pipeline]')"
        ) from error
