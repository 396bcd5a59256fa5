"""The environments of rivals: one that cannot be made says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.peers import venv
from bench.peers.venv import MissingPeer, peer_python

PYTHON = """#!/bin/sh
# `-m venv --clear FOLDER` makes an interpreter like itself; `-m pip install … PINS` installs
# everything but what is not to be found.
case "$2" in
venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
pip) for pins; do :; done; ! grep not-to-be-found "$pins" ;;
esac
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interpreter that takes no time."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(venv, "_PINS", tmp_path)


def test_a_rival_without_pins_is_missing() -> None:
    with pytest.raises(MissingPeer, match=r"requirements-nobody\.txt"):
        peer_python("nobody")


def test_pins_that_cannot_be_installed_say_what_pip_said(tmp_path: Path) -> None:
    (tmp_path / "requirements-away.txt").write_text("--no-index\nnot-to-be-found==1.0\n")
    with pytest.raises(MissingPeer, match="not-to-be-found") as missing:
        peer_python("away")
    assert missing.value.reason == str(missing.value)


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements-nothing.txt").write_text("# nothing\n")
    first = peer_python("nothing")
    monkeypatch.setattr(venv, "_make", lambda *_: pytest.fail("made again"))
    assert first.exists()
    assert peer_python("nothing") == first
