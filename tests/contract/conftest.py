"""Each contract runs on every backend: settings of a store, or a namespace, of the test's own.

In memory there is no place that settings could name: only `connections` are of that backend.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.backends.memory import MemoryBackend
from pushlane.settings import Settings
from tests.provider_answers import HTTP2_TRANSPORTS, TRANSPORTS

BATCH = 8

ON_PLACES = ["embedded", pytest.param("pulsar", marks=pytest.mark.pulsar)]
"""The backends that another process finds by its settings."""


@pytest.fixture(params=["memory", *ON_PLACES])
def backend_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def settings(request: pytest.FixtureRequest, backend_kind: str, tmp_path) -> Settings:
    sizes = {"batch": BATCH, "prefetch": 2 * BATCH}
    if backend_kind == "pulsar":
        return request.getfixturevalue("pulsar_settings").but(**sizes)
    return Settings(broker="embedded", data_dir=tmp_path / "store", **sizes)


class Connections:
    """As many connections to the backend as a test asks for, each like a process of its own."""

    connect: Callable[[Settings], AbstractAsyncContextManager[Backend]] = staticmethod(connect)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()

    async def one(self) -> Backend:
        return await self._stack.enter_async_context(self.connect(self._settings))

    async def two(self) -> tuple[Backend, Backend]:
        return await self.one(), await self.one()

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@pytest.fixture
def connections(backend_kind: str, settings: Settings) -> Connections:
    """To be entered by the test, in whose loop it connects."""
    return connections_of(backend_kind)(settings)


def connections_of(backend_kind: str) -> type[Connections]:
    """Connections to a backend of this kind: all to one store where it is in memory."""
    if backend_kind != "memory":
        return Connections

    class InMemory(Connections):
        connect = MemoryBackend().connect

    return InMemory


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of a sink that have it post through one transport after the other."""
    return TRANSPORTS[request.param]


@pytest.fixture(params=HTTP2_TRANSPORTS)
def http2_transport(request: pytest.FixtureRequest) -> dict[str, str]:
    """Do as `transport` for providers that speak HTTP/2."""
    return HTTP2_TRANSPORTS[request.param]
