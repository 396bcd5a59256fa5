"""What every test may ask for. A test that is a coroutine function runs in a loop of its own.

A law is tried on few examples, and on eight times as many with `HYPOTHESIS_PROFILE=thorough`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from pushlane.dispatcher.transport import pyreqwest_client
from pushlane.settings import Settings

pytest_plugins = [
    "tests.command",
    "tests.in_memory",
    "tests.services",
    "tests.groups",
    "tests.processes",
    "tests.pulsar_cluster",
    "tests.own_redis",
    "tests.prometheus",
    "tests.redis_groups",
    "tests.secure_pulsar",
    "tests.spark",
    "tests.spark_cluster",
]

DEADLINE_S = 120.0

# No deadline for an example: a busy machine breaks no law.
hypothesis.settings.register_profile("ordinary", max_examples=25, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=200, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))


def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: most tests wait for timers and threads, and leave the core to others."""
    return 2 * (os.cpu_count() or 1) + 1


@pytest.fixture
def settings(own_environment: None, tmp_path: Path) -> Settings:
    """Those of an embedded store of the test's own."""
    return Settings(broker="embedded", data_dir=tmp_path / "store")


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_threads_of_a_client() -> Iterator[None]:
    """A sink that closes waits 0.1 s, so that its process can end; here the process goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyreqwest_client, "_THREADS_END_S", 0.0)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def test_…`, with a deadline for whatever it waits on."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(_within_deadline(pyfuncitem, names))
    return True


async def _within_deadline(pyfuncitem: pytest.Function, names) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
