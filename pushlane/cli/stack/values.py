"""What a local stack is made of: ports, URLs, versions, and the broker's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

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
