"""Runs `pushlane` commands in this process, on an embedded store of the test's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cli.main import build


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


class Command:
    """`command("tasks", "--json")` runs it; `--data-dir` comes from the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str | Path, given: str = "") -> Ran:
        result = CliRunner().invoke(build(), [str(word) for word in arguments], input=given)
        return Ran(result.exit_code, result.stdout, result.stderr)

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def submit(self, level: str = "high", rows: int = 3, *more: str) -> str:
        """A task of so many rows; its id."""
        lines = "".join(f"user-{number}\n" for number in range(rows))
        path = self.file("rows.csv", f"recipient\n{lines}")
        ran = self("submit", path, "--level", level, *more)
        assert ran.exit_code == 0, ran.stderr
        return ran.stdout.strip()
