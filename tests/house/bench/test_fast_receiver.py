"""The receiver of the fast benchmarks, as the bare client posts to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.bare_client import TASK
from bench.certificates import make_certificates, trusting
from bench.cpu import run_metered
from bench.deliveries import account
from bench.fast_receiver import fast_receiver
from dev.receiver import Follower
from pushlane.core.errors import PushlaneError

_PUSHES = 200


def post(url: str, variables: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bench.bare_client", "pyreqwest", url, str(_PUSHES), "5"]
    run_metered(command, variables)


@pytest.mark.parametrize("with_tls", [False, True])
def test_what_a_bare_client_posts_is_in_the_log_once(tmp_path: Path, *, with_tls: bool) -> None:
    certificates = make_certificates(tmp_path) if with_tls else None
    log = Follower(tmp_path / "arrivals.jsonl")
    with fast_receiver(log.path, certificates=certificates) as receiver:
        assert receiver.url.startswith("https://" if with_tls else "http://")
        post(receiver.url, trusting(certificates))

    log.read()
    assert account(log.arrivals, {TASK: _PUSHES}) == ([], 0)


def test_who_does_not_trust_the_certificate_posts_nothing(tmp_path: Path) -> None:
    ours, theirs = (tmp_path / name for name in ("ours", "theirs"))
    for folder in (ours, theirs):
        folder.mkdir()
    log = Follower(tmp_path / "arrivals.jsonl")
    with (
        fast_receiver(log.path, certificates=make_certificates(theirs)) as receiver,
        pytest.raises(PushlaneError, match="exit code 1"),
    ):
        post(receiver.url, trusting(make_certificates(ours)))

    assert log.read() == []
