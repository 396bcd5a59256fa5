"""The README's first commands and first program, run as they stand in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
TRY_IT = README[README.index("## Try it") : README.index("## When to use something else")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, and a program `pushlane` that is this one."""
    program = tmp_path / "bin" / "pushlane"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pushlane "$@"\n')
    program.chmod(0o755)
    empty = tmp_path / "empty"
    empty.mkdir()
    return empty


def run(folder: Path, script: str, **more: str) -> str:
    """Run a script of the shell that stops at its first error; return what it printed."""
    environment = {key: value for key, value in os.environ.items() if "PUSHLANE" not in key}
    environment["PATH"] = f"{folder.parent / 'bin'}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    environment["PUSHLANE_DATA_DIR"] = str(folder.parent / "store")
    environment |= more
    ran = subprocess.run(
        ["sh", "-ec", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def block(language: str) -> str:
    """The last block of this language: one before it installs."""
    return re.findall(rf"```{language}\n(.*?)```", TRY_IT, re.DOTALL)[-1]


def test_the_five_commands(folder: Path) -> None:
    commands = block("sh")
    assert len(commands.splitlines()) == 5

    lines = [line for line in run(folder, commands).splitlines() if "  device-" in line]

    levels = [line.split()[0] for line in lines]
    assert (levels.count("high"), levels.count("low")) == (20, 20)
    assert levels[0] == "high"
    assert levels[:14].count("high") == 12


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["in blocks", "unbuffered"])
def test_the_first_program(folder: Path, unbuffered: str) -> None:
    (folder / "shop.py").write_text(block("python"))

    python = f"{sys.executable} shop.py"
    script = f"{python}\npushlane dispatch --sink shop:send --drain"
    printed = run(folder, script, PYTHONUNBUFFERED=unbuffered)

    pushed = {f"device-{order} Order paid {{'order': {order}}}" for order in range(1_000)}
    assert "device-999 Order paid {'order': 999}" in printed
    assert len(printed.splitlines()) == 1_000
    assert set(printed.splitlines()) == pushed
