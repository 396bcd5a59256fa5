"""Runs `pushlane` commands in this process, on an embedded store of the test's own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pushlane.backends.backend import connect
from pushlane.cli.main import build
from pushlane.settings import Settings


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one document and nothing else."""
        return json.loads(self.stdout)


def make_store(folder: Path) -> None:
    """Make an empty store, as the first submit does: a command that reads makes none."""

    async def make() -> None:
        async with connect(Settings(data_dir=folder)):
            pass

    asyncio.run(make())


def run_here(*arguments: str | Path, given: str = "") -> Ran:
    """Run a command in this process, with its folder and environment."""
    with CliRunner().isolation(input=given) as (stdout, stderr, _):
        exit_code = _exit_code(*map(str, arguments))
        return Ran(exit_code, stdout.getvalue().decode(), stderr.getvalue().decode())


class Command:
    """`command("tasks", "--json")` runs it; `--data-dir` comes from the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str | Path, given: str = "") -> Ran:
        return run_here(*arguments, given=given)

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def submit(self, level: str = "high", rows: int = 3, *more: str) -> str:
        """A task of so many rows; its id."""
        lines = "".join(f"user-{number}\n" for number in range(rows))
        path = self.file("rows.csv", f"recipient\n{lines}")
        ran = self("submit", path, "--level", level, "--title", "Hi", *more)
        assert ran.exit_code == 0, ran.stderr
        return ran.stdout.strip()

    def receive(self, *bodies: bytes) -> None:
        """Append these bodies to the log of receipts."""

        async def append() -> None:
            async with connect(Settings(data_dir=self.folder / "data")) as backend:
                await backend.receipts.append(list(bodies))

        asyncio.run(append())


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps out what the environment says of settings."""
    for name in os.environ:
        if name.startswith("PUSHLANE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def command(
    own_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Command]:
    """Runs commands in an empty folder, with a store and no settings but its own."""
    monkeypatch.setenv("PUSHLANE_DATA_DIR", str(tmp_path / "data"))
    make_store(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger(), "handlers", [*logging.getLogger().handlers])
    for name in ("", "pushlane"):  # what `--log-format` sets up is for this test alone
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "level", logger.level)
    if not getattr(request, "param", False):
        yield Command(tmp_path)
        return
    from tests.served import ServedCommand, served

    settings = Settings(data_dir=tmp_path / "data", rules_over_http=True)
    token = tmp_path / "token"
    with served(settings, token) as url:
        yield ServedCommand(tmp_path, monkeypatch, url, token)


@cache
def _program() -> Any:
    """Holds no state of a run; to put it together takes longer than most commands do."""
    return get_command(build())


def _exit_code(*arguments: str) -> int:
    try:
        _program().main(arguments, prog_name="pushlane")
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    raise AssertionError("a command ends with an exit code")
