"""What a local stack is made of: ports, URLs, versions, and the port of one way to run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import msgspec

HOST = "127.0.0.1"
PULSAR_VERSION = "4.0.8"
PULSAR_IMAGE = f"apachepulsar/pulsar:{PULSAR_VERSION}"
REDIS_IMAGE = "redis:7"

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


class StackStatus(msgspec.Struct, frozen=True):
    """A stack that was started: how, where, and whether its parts answer now."""

    way: str
    urls: StackUrls
    pulsar_answers: bool
    redis_answers: bool

    @property
    def healthy(self) -> bool:
        return self.pulsar_answers and self.redis_answers


class StackRuntime(Protocol):
    """One way to run the two services. Starting returns before they answer."""

    name: str

    def start(self, ports: Ports, on_step: OnStep) -> None: ...

    def stop(self, *, delete_data: bool) -> None:
        """Harmless for what does not run."""

    def is_running(self, service: str) -> bool: ...

    def log_tail(self, service: str) -> str: ...


class StackState(msgspec.Struct, frozen=True):
    """What is kept in the run folder while a stack is up."""

    way: str
    ports: Ports


def state_file(run_dir: Path) -> Path:
    return run_dir / "stack.json"
