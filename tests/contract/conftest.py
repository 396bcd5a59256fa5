"""Each contract runs on every backend: settings of a store, or a namespace, of the test's own."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from pushlane.lanes.backend import Backend, connect
from pushlane.lanes.settings import Settings

BATCH = 8


@pytest.fixture(params=["embedded", pytest.param("pulsar", marks=pytest.mark.pulsar)])
def settings(request: pytest.FixtureRequest, tmp_path) -> Settings:
    sizes = {"batch": BATCH, "prefetch": 2 * BATCH}
    if request.param == "embedded":
        return Settings(broker="embedded", data_dir=tmp_path / "store", **sizes)
    return request.getfixturevalue("pulsar_settings").but(**sizes)


class Connections:
    """As many connections to the backend as a test asks for, each like a process of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()

    async def one(self) -> Backend:
        return await self._stack.enter_async_context(connect(self._settings))

    async def two(self) -> tuple[Backend, Backend]:
        return await self.one(), await self.one()

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@pytest.fixture
def connections(settings: Settings) -> Connections:
    """To be entered by the test, in whose loop it connects."""
    return Connections(settings)
