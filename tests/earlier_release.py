"""Runs the code of an earlier release beside the present one, from the repository's history."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command import Ran
from tests.processes import DEADLINE_S, ROOT, Pushlane


class Release(NamedTuple):
    """Its place in the history, the module that runs its program, and what else that needs."""

    commit: str
    program: str
    needs: str = ""


OLDEST = Release("42cdeb21035a1926db3b4eb457dacbd3ab86bb2e", "cli", "pydantic_settings")
LAST = Release("fe292930544e4bc9bae1b234512223585a53244c", "pushlane")


class Earlier(Pushlane):
    """`pushlane` commands of an earlier release, each a process."""

    def __init__(
        self, release: Release, code: Path, folder: Path, settings: Mapping[str, str]
    ) -> None:
        super().__init__(folder, settings)
        self._program = release.program
        self._env["PYTHONPATH"] = str(code)

    def ran(self, *arguments: str | Path) -> Ran:
        ran = subprocess.run(
            self._command(*arguments),
            env=self._env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def _command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", self._program, *map(str, arguments)]


def code_of(release: Release, folder: Path) -> Path:
    """Its files, in a folder of their own. Without the history the test is skipped."""
    if release.needs and importlib.util.find_spec(release.needs) is None:
        _give_up(f"{release.commit} needs {release.needs}, which is not installed")
    archive = folder / "code.tar"
    command = ["git", "archive", "--output", str(archive), release.commit]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if shown.returncode:
        pytest.skip(f"the history has no {release.commit}: {shown.stderr.strip()}")
    code = folder / "code"
    code.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(code)], check=True)
    return code


def _give_up(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
