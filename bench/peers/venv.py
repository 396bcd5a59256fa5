"""A Python environment for each rival, made once in the user's cache folder.

What is in it is pinned by `requirements-NAME.txt` beside this file; with other pins it is another
environment, so results never come from an outdated one.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from bench.figures import say
from dev import alone
from dev.stack import default_cache_dir

_PINS = Path(__file__).parent
_REASON_LINES = 3


class MissingPeer(Exception):
    """A rival cannot be run here; `reason` tells why, for the figure that stays empty."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def peer_python(name: str) -> Path:
    """The interpreter that the rival `name` is installed for.

    Raises:
        MissingPeer: there are no pins of that name, or pip cannot install them.
    """
    pins = _PINS / f"requirements-{name}.txt"
    if not pins.exists():
        raise MissingPeer(f"there is no {pins.name}")
    folder = default_cache_dir() / "peers"
    venv = folder / f"{name}-{_version(pins)}"
    with alone(folder / f"{name}.lock", lambda: say(f"waiting for another that installs {name}")):
        if not (venv / "whole").exists():
            _make(venv, pins)
    return venv / "bin" / "python"


def _version(pins: Path) -> str:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return hashlib.sha256(python.encode() + pins.read_bytes()).hexdigest()[:12]


def _make(venv: Path, pins: Path) -> None:
    """A venv that is marked when it is whole: one that was broken off is made anew."""
    say(f"installing {pins.stem.removeprefix('requirements-')} (once)")
    _run([sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*pip, "--quiet", "-r", str(pins)])
    (venv / "whole").touch()


def _run(command: list[str]) -> None:
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        raise MissingPeer(" ".join(ended.stdout.strip().splitlines()[-_REASON_LINES:]))
