"""What every test may ask for. A test that is a coroutine function runs in a loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import hypothesis
import pytest

pytest_plugins = [
    "tests.services",
    "tests.processes",
    "tests.own_redis",
    "tests.sparks",
    "tests.spark_cluster",
]

DEADLINE_S = 60.0

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine breaks no law
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have all tests of the one Spark session run by one worker, where there are several."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


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
