"""A server of the HTTP API on a thread of this process, for tests that work through one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.door.app import Door, build
from pushlane.door.server import Listening, Place, listening
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller
from pushlane.settings import Settings
from tests.command import Command, Ran, run_here

_BESIDE = "cannot be done through the server"


@contextmanager
def served(settings: Settings, token_file: Path, *, for_agents: bool = False) -> Iterator[str]:
    """Serve what these settings name; give the URL. A token of an admin is in the file."""
    begun: list[Listening] = []
    is_ready = threading.Event()

    async def serve() -> None:
        async with connect(settings) as backend:
            asked = CreateToken.made(name="me", grants="admin")
            made = await do(backend, settings, Caller("root", "cli"), asked)
            await asyncio.to_thread(token_file.write_text, made.token)
            door = Door(backend, settings)
            server = listening(build(door, for_agents=for_agents), Place("127.0.0.1", 0))
            begun.append(server)
            is_ready.set()
            await server.run()
            door.stopping.set()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert is_ready.wait(30)
    [server] = begun
    try:
        yield server.url
    finally:
        server.stop()
        thread.join()


class ServedCommand(Command):
    """Runs commands through a server; what cannot be done through one, beside the backend."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, url: str, token: Path) -> None:
        super().__init__(folder)
        self._patch = patch
        self._server = {"PUSHLANE_URL": url, "PUSHLANE_TOKEN_FILE": str(token)}

    def __call__(self, *arguments: str | Path, given: str = "") -> Ran:
        with self._patch.context() as patch:
            for name, value in self._server.items():
                patch.setenv(name, value)
            ran = run_here(*arguments, given=given)
        if ran.exit_code == 2 and _BESIDE in ran.stderr:
            return run_here(*arguments, given=given)
        return ran
