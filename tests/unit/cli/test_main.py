"""What the program loads for a command, and that it knows all commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.main import _COMMANDS, commands_of


@pytest.mark.parametrize("module", _COMMANDS)
def test_every_command_that_a_module_registers_is_known_by_name(module: str) -> None:
    assert set(commands_of(module)) == set(_COMMANDS[module])


def test_a_command_loads_no_other_commands_libraries() -> None:
    look = "import sys; from cli.main import commands_of; commands_of('tasks'); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    loaded = set(ran.stdout.split())
    assert "cli.tasks" in loaded
    assert not loaded & {"pyarrow", "numpy", "pulsar", "redis", "dispatcher", "cli.dispatch"}


def test_a_misspelt_command_is_answered_with_those_that_are_near(command) -> None:
    ran = command("taks")

    assert ran.exit_code == 2
    assert "Did you mean 'tasks'" in ran.stderr
