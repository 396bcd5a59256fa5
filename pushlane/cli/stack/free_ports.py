"""Finds ports to listen on, and says which one is taken."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from pushlane.cli.stack.values import HOST, Ports
from pushlane.lanes.errors import UserError


def settle(wanted: Ports) -> Ports:
    """The wanted ports, with a free one in place of each 0.

    Raises:
        UserError: somebody listens on one of them, or two are the same.
    """
    with ExitStack() as held:  # all at once, so that no free port is given out twice
        return Ports(
            broker=_bind(held, wanted.broker, "broker"),
            admin=_bind(held, wanted.admin, "admin"),
            redis=_bind(held, wanted.redis, "redis"),
        )


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many ports, none of them twice."""
    with ExitStack() as held:
        return [_bind(held, 0, "free") for _ in range(count)]


def _bind(held: ExitStack, port: int, what: str) -> int:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        raise UserError(
            f"the {what} port {port} on {HOST} cannot be used ({error}); "
            "stop what listens there, or choose another port (0 takes a free one)"
        ) from error
    listener.listen(1)
    return int(listener.getsockname()[1])
