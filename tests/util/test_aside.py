"""Work beside the event loop: on another thread, and without the garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pushlane.util.threads import aside


@pytest.fixture(params=[True, False])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the process collects garbage."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


async def test_nothing_is_collected_meanwhile_and_then_as_before(was_on: bool) -> None:
    assert await aside(gc.isenabled) is False
    assert gc.isenabled() is was_on


async def test_what_fails_leaves_the_collector_as_it_was(was_on: bool) -> None:
    with suppress(ZeroDivisionError):
        await aside(lambda: 1 / 0)

    assert gc.isenabled() is was_on


async def test_the_loop_goes_on() -> None:
    assert await aside(threading.get_ident) != threading.get_ident()
