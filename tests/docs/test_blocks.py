"""Runs the tutorial and the how-tos as they are written: each in an empty folder, on loopback.

A block `sh` is run, in one shell for the whole page; one that installs is left out. A block
`python` or `toml` begins with `# NAME.py` or the like, and is written to that file before the next
commands. A block `text` is what the commands before it print: each of its lines has to be in their
output, with other ids.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dev.stack.services import free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ["tutorial.md", *sorted(path.name for path in DOCS.glob("howto-*.md"))]
OF_FRAMEWORKS = {"howto-celery.md", "howto-django.md", "howto-fastapi.md"}
"""Pages that need what `make howto` installs into a venv of its own."""
BOUND_S = 150
_BLOCK = re.compile(r"^```(sh|python|toml|text)\n(.*?)^```$", re.M | re.S)
_ENDS = {"python": "py", "toml": "toml"}
_PORT = re.compile(r"127\.0\.0\.1:(\d{4})\b")
_ID = re.compile(r"\bm[0-9a-z]{13}\b(-\d+)?")
_END = "--- end of a block ---"


@dataclass
class Step:
    """A block of commands with what it has to print."""

    commands: str
    prints: list[str] = field(default_factory=list)


def steps_of(text: str, folder: Path) -> Iterator[Step]:
    """The steps of a page, each with what writes the files before it; those lie in the folder."""
    step: Step | None = None
    writes = ""
    for number, (kind, content) in enumerate(_BLOCK.findall(text)):
        if kind in ("python", "toml"):
            named = re.match(rf"# ([\w/]+\.{_ENDS[kind]})\n", content)
            assert named, f"a file without a name: {content[:40]}"
            file = folder / str(number)
            file.write_text(content)
            writes += f"install -D -m 644 {file} {named[1]}\n"
        elif kind == "text":
            assert step, "an output before any command"
            step.prints += content.splitlines()
        elif "pip install" not in content:
            if step:
                yield step
            step = Step(writes + content)
            writes = ""
    assert step, "no commands"
    yield step


def on_own_ports(text: str) -> str:
    """The page with a free port for each that it names."""
    for port in set(_PORT.findall(text)):
        text = re.sub(rf"\b{port}\b", str(free_port()), text)
    return text


def printed(line: str, output: str) -> bool:
    """Whether the output has the line; any id stands for any other, and spaces for each other."""
    plain = " ".join(_ID.sub("ID", line).split())
    return plain in " ".join(_ID.sub("ID", output).split())


def programs_of(page: str) -> Path:
    """The folder of commands that a page takes; without it the test is skipped, in CI it fails."""
    if page not in OF_FRAMEWORKS:
        return Path(sys.executable).parent
    found = ROOT / ".venv-howto" / "bin"
    if not found.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("not installed: make howto")
    return found


def environment(programs: Path, home: Path) -> dict[str, str]:
    """What a reader's shell has: these commands first, and no setting of pushlane."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUSHLANE_")}
    kept["PATH"] = f"{programs}{os.pathsep}{kept['PATH']}"
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def run(script: str, folder: Path, programs: Path) -> str:
    """What a shell prints that runs the script in the folder; it leaves no process behind."""
    output = folder.parent / "output.txt"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment(programs, folder.parent),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            left = _end_group(shell.pid)
            shell.wait()
    said = output.read_text()
    assert code == 0, said
    assert not left, f"the page leaves a process behind:\n{said}"
    return said


def _end_group(group: int) -> bool:
    """Kill what is left of a process group; whether anything was."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    steps = list(steps_of(on_own_ports((DOCS / page).read_text()), tmp_path))
    script = "".join(f"{step.commands}\necho '{_END}'\n" for step in steps)

    said = run(script, folder, programs_of(page))

    for step, output in zip(steps, said.split(_END), strict=False):
        for line in step.prints:
            assert printed(line, output), f"{line!r} is not printed by\n{step.commands}\n{output}"


def test_ports_are_others_but_the_same_throughout() -> None:
    text = on_own_ports('("127.0.0.1", 9000) http://127.0.0.1:9000/push http://127.0.0.1:8400/')

    first, second, third = re.findall(r"\d{4,}", text)
    assert first == second != third
    assert not {"9000", "8400"} & {first, third}


def test_a_line_is_looked_for_with_any_id() -> None:
    output = "high    m8ectqf0hcnc8y-1   device-1\n"

    assert printed("high m8aaaaaaaaaaaa-7 device-1", output)
    assert not printed("high m8aaaaaaaaaaaa-7 device-2", output)
