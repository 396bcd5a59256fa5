"""Has tests of one group run in one worker, which `--dist loadgroup` promises.

xdist 3.8 tells groups by names of tests that it changes, which pytest 9.2 no longer lets it do
(pytest-xdist#1386): silently, each worker started a Spark, a broker and Redis groups of its own. So
workers write what group a test is of into the folder of the run, where the scheduler reads it.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.services import run_dir


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have all tests of the one Spark session run by one worker, where there are several."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(tryfirst=True)  # before the worker says that it has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the groups, where this is a worker; each of them writes the same."""
    if hasattr(session.config, "workerinput"):
        marks = {item.nodeid: item.get_closest_marker("xdist_group") for item in session.items}
        groups = {nodeid: mark.args[0] for nodeid, mark in marks.items() if mark}
        written = _file().with_suffix(f".{os.getpid()}")
        written.write_bytes(msgspec.json.encode(groups))
        written.replace(_file())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return ByGroup(config, log) if config.getoption("dist") == "loadgroup" else None


class ByGroup(LoadScopeScheduling):
    """A group goes to one worker, groups of many tests first; other tests go one by one."""

    @cached_property
    def _groups(self) -> dict[str, str]:
        return msgspec.json.decode(_file().read_bytes(), type=dict[str, str])

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)


def _file() -> Path:
    return run_dir() / "groups"
