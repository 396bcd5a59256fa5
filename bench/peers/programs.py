"""The rivals that are not in Python: built or installed once, in the user's cache folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from bench.figures import say
from bench.peers.venv import MissingPeer
from dev.stack import default_cache_dir

APPS = Path(__file__).parent / "apps"
_REASON_CHARACTERS = 300
_DEADLINE_S = 300


def asynq() -> Path:
    """The program of apps/asynq, built with the modules that its go.sum names.

    Raises:
        MissingPeer: there is no Go, or it cannot get them.
    """
    program = _folder("asynq") / "asynq"
    say("building asynq's program")
    _run(["go", "build", "-o", str(program), "."], APPS / "asynq")
    return program


def asynq_version() -> str:
    found = re.search(r"hibiken/asynq v(\S+)", (APPS / "asynq" / "go.mod").read_text())
    assert found is not None
    return found[1]


def bullmq() -> Path:
    """A folder with the program of apps/bullmq and what its package-lock.json names.

    Raises:
        MissingPeer: there is no npm, or it cannot get them.
    """
    folder, source = _folder("bullmq"), APPS / "bullmq"
    _require("node")
    whole = folder / "whole"
    lock = (source / "package-lock.json").read_text()
    for file in source.iterdir():
        shutil.copy(file, folder)
    if not whole.exists() or whole.read_text() != lock:
        say("installing bullmq (once)")
        _run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
        whole.write_text(lock)
    return folder


def bullmq_version() -> str:
    package = json.loads((APPS / "bullmq" / "package.json").read_text())
    return str(package["dependencies"]["bullmq"])


def _folder(name: str) -> Path:
    folder = default_cache_dir() / "peers" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise MissingPeer(f"there is no {program} on this machine")


def _run(command: list[str], cwd: Path) -> None:
    _require(command[0])
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingPeer(f"{command[0]} took over {_DEADLINE_S} s") from error
    if ended.returncode:
        raise MissingPeer(" ".join(ended.stdout.split())[:_REASON_CHARACTERS])
