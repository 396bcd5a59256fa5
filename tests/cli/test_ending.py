"""How the process of a command ends: with its own code, all output written, whoever reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT)}
_LARGE = 1_000_000
_PROGRAM = """
import atexit, sys, threading
from pushlane.cli.main import run_and_end

def command():
    {body}

run_and_end(command)
"""


def ended(body: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM.format(body=body)]
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, env=_ENVIRONMENT, text=True, **{"capture_output": True, **options}
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('it is wrong')", 1),
        ("raise ValueError", 1),
    ],
)
def test_the_exit_code_is_that_of_the_command(body: str, code: int) -> None:
    assert ended(body).returncode == code


def test_a_text_as_exit_code_is_shown() -> None:
    assert ended("sys.exit('it is wrong')").stderr == "it is wrong\n"


def test_all_output_gets_through_a_pipe() -> None:
    ran = ended(f"sys.stdout.write('x' * {_LARGE}); sys.stderr.write('y'); sys.exit(3)")

    assert (len(ran.stdout), ran.stderr, ran.returncode) == (_LARGE, "y", 3)


def test_exit_functions_run_and_may_write() -> None:
    assert ended("atexit.register(print, 'bye')").stdout == "bye\n"


def test_a_thread_that_is_no_daemon_is_waited_for() -> None:
    body = "t = threading.Timer(0.05, print, ['done']); t.start()"
    assert ended(body).stdout == "done\n"


def test_a_reader_that_has_gone_makes_no_traceback() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        ran = ended("sys.stdout.write('x')", stdout=writes, capture_output=False, stderr=-1)
    finally:
        os.close(writes)

    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_command_whose_reader_has_gone_keeps_its_own_code() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        body = "sys.stdout.write('x'); sys.exit(4)"
        ran = ended(body, stdout=writes, capture_output=False, stderr=-1)
    finally:
        os.close(writes)

    assert (ran.returncode, ran.stderr) == (4, "")


def test_the_interpreter_does_not_take_itself_apart() -> None:
    """What native threads do meanwhile cannot abort the process, then."""
    body = "sys.end = type('End', (), {'__del__': lambda self: print('taken apart')})()"
    assert ended(body).stdout == ""


def test_under_a_profiler_the_program_that_measures_goes_on() -> None:
    program = """
import cProfile
from pushlane.cli.main import run_and_end
profile = cProfile.Profile()
try:
    profile.runcall(run_and_end, lambda: None)
except SystemExit as end:
    print("measured", end.code)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], env=_ENVIRONMENT, text=True, capture_output=True
    )

    assert ran.stdout == "measured 0\n"


@pytest.mark.parametrize("words", [["--version"], ["no-such-command"], ["config"]])
def test_a_real_command_ends_like_that(words: list[str], tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pushlane", *words],
        env=_ENVIRONMENT,
        text=True,
        capture_output=True,
        cwd=tmp_path,
    )

    assert ran.returncode == (2 if words == ["no-such-command"] else 0)
    assert bool(ran.stdout) is (words != ["no-such-command"])
