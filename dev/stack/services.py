"""What a local stack is made of: ports, URLs, versions, broker settings; and whether it answers."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from pushlane.core.errors import Unreachable, UserError

HOST = "127.0.0.1"
PULSAR_VERSION = "4.0.8"
PULSAR_IMAGE = f"apachepulsar/pulsar:{PULSAR_VERSION}"
REDIS_IMAGE = "redis:7"
ENVIRONMENT = {
    "PULSAR_MEM": "-Xms512m -Xmx1g -XX:MaxDirectMemorySize=1g",
    "PULSAR_GC": "-XX:+UseG1GC",
    "PULSAR_LOG_LEVEL": "warn",
    "PULSAR_LOG_ROOT_LEVEL": "warn",
}

Prefer = Literal["auto", "docker", "local"]
OnStep = Callable[[str], None]


class Ports(msgspec.Struct, frozen=True):
    """Where to listen; 0 takes a free port."""

    broker: int = 6650
    admin: int = 8080
    redis: int = 6379

    @property
    def urls(self) -> StackUrls:
        return StackUrls(
            broker=f"pulsar://{HOST}:{self.broker}",
            admin=f"http://{HOST}:{self.admin}",
            redis=f"redis://{HOST}:{self.redis}/0",
        )


class StackUrls(msgspec.Struct, frozen=True):
    """What to give to pushlane as PUSHLANE_BROKER, PUSHLANE_ADMIN_URL and PUSHLANE_REDIS_URL."""

    broker: str
    admin: str
    redis: str


def conf_lines(ports: Ports, *, bind: str, advertise: str = HOST) -> str:
    """The broker settings that pushlane needs, for the end of a standalone.conf.

    A later line wins over an earlier one of the same name. It begins with an empty line, since the
    file lacks a last newline. journalSyncData stays what standalone has (false): a machine that
    loses power can lose the last messages, so measure no durability on it.
    """
    settings = {
        "bindAddress": bind,
        "advertisedAddress": advertise,
        "brokerServicePort": ports.broker,
        "webServicePort": ports.admin,
        "allowAutoTopicCreation": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "delayedDeliveryTickTimeMillis": "100",
    }
    return "\n" + "".join(f"{name}={value}\n" for name, value in settings.items())


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


def check_free(ports: Mapping[str, int]) -> None:
    """Raise UserError when somebody listens on one of these ports, which are by what they are."""
    with ExitStack() as held:
        for what, port in ports.items():
            _bind(held, port, what)


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


ASK_TIMEOUT_S = 5.0
POLL_S = 0.2


def pulsar_answers(admin_url: str) -> bool:
    """Whether the broker's own check passes: it publishes to itself and reads that back."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{admin_url}/admin/v2/brokers/health", timeout=ASK_TIMEOUT_S) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def redis_answers(url: str) -> bool:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 6379)
    try:
        with socket.create_connection(address, timeout=ASK_TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def wait_until(
    answers: Callable[[], bool],
    *,
    what: str,
    deadline_s: float,
    is_running: Callable[[], bool],
    log_tail: Callable[[], str],
) -> None:
    """Return when it answers.

    Raises:
        Unreachable: it ended, or `deadline_s` passed; shows the end of its log.
    """
    until = time.monotonic() + deadline_s
    while not answers():
        if not is_running():
            raise Unreachable(f"{what} ended while starting; the end of its log:\n{log_tail()}")
        if time.monotonic() > until:
            raise Unreachable(
                f"{what} is silent after {deadline_s:.0f} s; the end of its log:\n{log_tail()}"
            )
        time.sleep(POLL_S)
