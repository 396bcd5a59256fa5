"""A redis-server of a test's own, to be killed, emptied, and started again with an older copy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from dev.stack.local import redis_server
from dev.stack.services import free_port, redis_answers, wait_until
from pushlane.core.errors import UserError

_DEADLINE_S = 60.0


class OwnRedis:
    """Keeps nothing on disk but the copies that `save` makes."""

    def __init__(self, server: str, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = {"--bind": "127.0.0.1", "--port": str(self.port), "--dir": str(self._folder)}
        words = [word for option in options.items() for word in option]
        process = self._process = subprocess.Popen(
            [self._server, *words, "--save", ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        wait_until(
            lambda: redis_answers(self.url),
            what="redis",
            deadline_s=_DEADLINE_S,
            is_running=lambda: process.poll() is None,
            log_tail=lambda: "",
        )

    def stop(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def empty(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def save(self) -> None:
        """Keep a copy of what it has now."""
        with redis.Redis.from_url(self.url) as client:
            client.save()

    def restore(self) -> None:
        """Kill it, and start it with the copy that was saved last."""
        self.stop()
        assert (self._folder / "dump.rdb").exists()
        self.start()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    folder = tmp_path / "redis"
    folder.mkdir()
    try:
        own = OwnRedis(redis_server(), folder)
    except UserError as reason:
        pytest.skip(str(reason))
    own.start()
    yield own
    own.stop()
    shutil.rmtree(folder, ignore_errors=True)
