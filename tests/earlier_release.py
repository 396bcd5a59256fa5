"""Runs the code of an earlier release beside the present one, from the repository's history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.command import Ran
from tests.processes import DEADLINE_S, ROOT, Pushlane

LAST = "fe292930544e4bc9bae1b234512223585a53244c"
"""Release 0.2.0 in the history."""


_RETRIED = """
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock
from pushlane.dispatcher.settlement import outcomes
from pushlane.lanes.push import Outcome, decode

body, at_ms = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
outcomes.now_ms = lambda: at_ms
settler = MagicMock()
job = SimpleNamespace(
    push=decode(body),
    taken=SimpleNamespace(body=body),
    task=SimpleNamespace(max_attempts=5),
    lane=MagicMock(),
)
its = outcomes.Outcomes(settler, MagicMock(), MagicMock(), print, float)
its.settle(job, Outcome.retry("HTTP 500", after_s=5.0))
print(settler.later.call_args.args[3].hex())
"""


def ran(code: Path, script: str, *arguments: str) -> bytes:
    """What the last release's code printed, in hexadecimal digits."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=code, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return bytes.fromhex(done.stdout)


def retried(code: Path, body: bytes, at_ms: int) -> bytes:
    """A push as the last release's code writes it again at this time, to be tried after 5 s."""
    return ran(code, _RETRIED, body.hex(), str(at_ms))


class Earlier(Pushlane):
    """`pushlane` commands of an earlier release, each a process."""

    def __init__(self, code: Path, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, settings)
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
        return [sys.executable, "-m", "pushlane", *map(str, arguments)]


def code_of(commit: str, folder: Path) -> Path:
    """Its files, in a folder of their own. Without the history the test is skipped."""
    archive = folder / "code.tar"
    command = ["git", "archive", "--output", str(archive), commit]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if shown.returncode:
        pytest.skip(f"the history has no {commit}: {shown.stderr.strip()}")
    code = folder / "code"
    code.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(code)], check=True)
    return code
