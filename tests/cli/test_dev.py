"""The commands of a clone: found from anywhere, and told of where there is no clone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pushlane.cli import dev
from pushlane.cli.main import _typer
from scripts.shape import ROOT


def test_a_clone_has_its_commands_where_only_pushlane_is_found(tmp_path: Path) -> None:
    """So it is for the program of an editable install, beside a `dev` of somebody else's."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "pushlane").symlink_to(ROOT / "pushlane")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "__init__.py").write_text("raise RuntimeError('this is not ours')\n")

    ran = subprocess.run(
        [sys.executable, "-m", "pushlane", "up", "--docker", "--local"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
    )

    assert ran.stderr == "error: --docker and --local exclude each other; give one of them\n"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["demo", "--provider", "fcm"], ""),
        (["up", "--docker"], "false\n"),
        (["up", "--json"], ""),
        (["down"], ""),
    ],
)
def test_without_a_clone_one_line_says_what_to_do(
    words: list[str], printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "commands.py").write_text("raise RuntimeError('this is not ours')\n")
    monkeypatch.setattr(dev, "_ROOT", tmp_path)
    app = _typer()
    dev.register(app)

    ran = CliRunner().invoke(app, words)

    assert (ran.exit_code, ran.stdout) == (1, printed)
    assert ran.stderr == (
        f"error: `pushlane {words[0]}` is in the folder dev/ of a clone, which is not installed: "
        "clone the repository, run `pip install -e '.[dev]'` in it, and try again\n"
    )
