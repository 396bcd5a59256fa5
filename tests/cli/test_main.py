"""What the program loads for a command, and that it knows all commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pushlane.cli.main import _COMMANDS, commands_of
from tests.command import make_store


@pytest.mark.parametrize("module", _COMMANDS)
def test_every_command_that_a_module_registers_is_known_by_name(module: str) -> None:
    assert set(commands_of(module)) == set(_COMMANDS[module])


_ROOT = Path(__file__).parents[2]
_ALWAYS = {"typer", "msgspec", "shellingham", "annotated_doc", "typing_extensions"}
_TABLE = {"rich"}
_DISPATCHER = {"uvloop", "prometheus_client", "_cyutility"}


@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        (["--version"], _ALWAYS),
        (["tasks"], _ALWAYS | _TABLE),
        (["submit", "rows.csv", "--level", "high", "--silent"], _ALWAYS | _TABLE),
        (["dispatch", "--drain", "--sink", "null"], _ALWAYS | _TABLE | _DISPATCHER),
    ],
)
def test_a_command_loads_no_library_that_it_can_do_without(
    tmp_path: Path, words: list[str], libraries: set[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("recipient\nuser-1\n")
    make_store(tmp_path / "store")
    given = [str(rows) if word == "rows.csv" else word for word in words]

    ran = subprocess.run(
        [sys.executable, "-c", _RUN, *given],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "PUSHLANE_DATA_DIR": "store"},
    )

    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.splitlines()[-1].split()) - libraries == set()


_RUN = """
import sys

before = set(sys.modules)
from pushlane.cli.main import build

try:
    build()(prog_name="pushlane")
except SystemExit as end:
    assert not end.code, end.code
loaded = {name: sys.modules[name] for name in set(sys.modules) - before if "." not in name}
files = {name: str(getattr(module, "__file__", "")) for name, module in loaded.items()}
print(*sorted(name for name, file in files.items() if "site-packages" in file))
"""


def test_a_misspelt_command_is_answered_with_those_that_are_near(command) -> None:
    ran = command("taks")

    assert ran.exit_code == 2
    assert "Did you mean 'tasks'" in ran.stderr
