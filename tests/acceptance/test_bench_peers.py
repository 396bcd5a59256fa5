"""The environment of a rival, by the real pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import venv
from bench.peers.venv import MissingPeer, peer_python


def test_pins_that_cannot_be_installed_say_what_pip_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(venv, "_PINS", tmp_path)
    (tmp_path / "requirements-away.txt").write_text("--no-index\nnot-to-be-found==1.0\n")

    with pytest.raises(MissingPeer, match="not-to-be-found"):
        peer_python("away")
