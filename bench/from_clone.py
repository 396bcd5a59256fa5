"""From a clone to the results of a campaign of 5,000, by the README's own commands.

The clone, its venv and all data are in a temporary folder, and pip's cache begins empty. The file
of 5,000 rows is there before. The venv is made once more with pip's cache full: what the first
took longer is the network's part.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.figures import Figure, at_most, say
from pushlane.core.errors import PushlaneError

ROWS = 5_000
_ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
_RESULTS = "pushlane results people"
_COMMANDS, _MINUTES = 6, 3.0


def commands_of(readme: str) -> tuple[list[str], list[str]]:
    """Return the README's commands that install, and those of its first campaign, to its results.

    Raises PushlaneError when it has none.
    """
    part = readme.partition("## Try it")[2].partition("\n## ")[0]
    blocks = [block.splitlines() for block in _BLOCK.findall(part)]
    if len(blocks) != 2:
        raise PushlaneError('the README has no two blocks of commands under "Try it"')
    installing, campaign = blocks
    try:
        wanted = [
            next(line for line in campaign if line.startswith(f"pushlane {name} "))
            for name in ("submit", "dispatch")
        ]
    except StopIteration:
        raise PushlaneError("the README submits or dispatches nothing") from None
    return installing, [*wanted, _RESULTS]


def measure(folder: Path) -> dict[str, Any]:
    """Run them in this empty folder. Raises PushlaneError when one fails."""
    clone, cache = folder / "clone", folder / "cache"
    subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
    installing, campaign = commands_of((clone / "README.md").read_text())
    rows = "".join(f"device-{number},Berlin\n" for number in range(1, ROWS + 1))
    (clone / "people.csv").write_text(f"recipient,city\n{rows}")
    environment = _environment(folder, cache)
    say("installing a clone, with pip's cache empty")
    took = _timed([*installing, *campaign], clone, environment)
    said = (folder / "said.txt").read_text()
    say("installing it again, with pip's cache full")
    (clone / ".venv").rename(folder / "venv-before")
    again = _timed(installing, clone, environment)
    own_s = sum(took[len(installing) :])
    network_s = sum(took[: len(installing)]) - sum(again)
    return {
        "commands": len(took),
        "minutes": round(sum(took) / 60, 2),
        "network_s": round(max(0.0, network_s), 1),
        "campaign_s": round(own_s, 1),
        "rows": ROWS,
        "lost": ROWS - _delivered(said),
        "steps": dict(zip([*installing, *campaign], took, strict=True)),
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    name = f"commands from a clone to the results of a campaign of {ROWS:,}"
    return [
        at_most(name, result["commands"], _COMMANDS),
        at_most("minutes that they take", result["minutes"], _MINUTES),
        Figure("the network's part, s", f"{result['network_s']:g}"),
        Figure("from `submit` to its results, s", f"{result['campaign_s']:g}"),
    ]


def _environment(folder: Path, cache: Path) -> dict[str, str]:
    ours = ("PUSHLANE_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    given = {"HOME": folder, "PIP_CACHE_DIR": cache, "PUSHLANE_DATA_DIR": folder / "data"}
    return kept | {name: str(value) for name, value in given.items()}


def _timed(commands: Sequence[str], clone: Path, environment: dict[str, str]) -> list[float]:
    """Run commands in one shell, and return the seconds of each."""
    times, said = clone.parent / "times.txt", clone.parent / "said.txt"
    stamp = f"date +%s.%N >> {shlex.quote(str(times))}"
    times.unlink(missing_ok=True)
    python = f'python3() {{ {shlex.quote(_interpreter())} "$@"; }}'
    script = "\n".join([python, stamp, *(f"{command}\n{stamp}" for command in commands)])
    with said.open("w") as out:
        ran = subprocess.run(
            ["bash", "-ec", script],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if ran.returncode:
        raise PushlaneError(f"a command of the README failed: {said.read_text()[-500:]}")
    at_s = [float(line) for line in times.read_text().splitlines()]
    return [round(end - begin, 2) for begin, end in pairwise(at_s)]


def _interpreter() -> str:
    """The Python of this machine, without the venv that the benchmark runs in."""
    return getattr(sys, "_base_executable", sys.executable)


def _delivered(said: str) -> int:
    """How many pushes the results say were delivered."""
    found = re.findall(r"^delivered +([\d,]+)$", said, re.M)
    return int(found[-1].replace(",", "")) if found else 0
