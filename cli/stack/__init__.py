"""A Pulsar and a Redis on this machine for development: start, stop, look.

Listens on 127.0.0.1 only, without passwords, with the broker settings that pushlane needs. Never
touches a service that it did not start itself.
"""

from __future__ import annotations

from pushlane.cli.stack.control import default_cache_dir, down, is_healthy, status, temporary, up
from pushlane.cli.stack.values import Ports, Prefer, StackUrls

__all__ = [
    "Ports",
    "Prefer",
    "StackUrls",
    "default_cache_dir",
    "down",
    "is_healthy",
    "status",
    "temporary",
    "up",
]
