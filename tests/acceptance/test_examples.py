"""The examples do what they say, from an audience to a report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

EXAMPLES = ROOT / "examples"
ROWS = 2_000


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("data", "__pycache__"))
    return folder


@pytest.fixture
def environment() -> dict[str, str]:
    """As after activating the venv, in a shell without settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUSHLANE_")}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": programs, "PYTHONPATH": str(ROOT)}


@pytest.mark.timeout(900)
def test_the_whole_way_ends_in_a_report(java, examples: Path, environment) -> None:
    ran = subprocess.run(
        ["./run.sh", str(ROWS)],
        cwd=examples,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )

    assert ran.returncode == 0, ran.stderr
    assert "no such device" in ran.stdout
    assert "events recorded" in ran.stdout
    assert "APP_VERSION" in ran.stdout.upper()
    assert "displayed   0 " not in ran.stdout
    assert (examples / "data" / "report.html").read_text().startswith("<!doctype html>")


def test_a_seed_makes_the_same_audience_again(examples: Path, environment) -> None:
    def made() -> dict[str, bytes]:
        program = [sys.executable, "make_audience.py", "--rows", str(ROWS)]
        subprocess.run(program, cwd=examples, env=environment, check=True, capture_output=True)
        files = sorted((examples / "data").rglob("*.*"))
        return {path.name: path.read_bytes() for path in files}

    assert made() == made()
