"""`serve` refuses to be where tokens would be read on their way. What it answers: tests/door."""

from __future__ import annotations

import pytest

from pushlane.cli.serve import _address
from tests.command import Command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--bind 0.0.0.0:0", "--bind 0.0.0.0:0 can be reached from other machines"),
        ("--bind 8400", "--bind '8400' is not HOST:PORT"),
        ("--tls-cert cert.pem", "--tls-cert and --tls-key go together"),
        ("--most-requests 0", "--most-requests 0 is not from 0.001"),
        ("--behind-proxy balancer", "--behind-proxy 'balancer' is neither an IP address"),
        (
            "--behind-proxy 10.0.0.1/8",
            "--behind-proxy '10.0.0.1/8' is neither an IP address nor a network",
        ),
    ],
)
def test_it_is_refused(command: Command, words: str, told: str) -> None:
    refused = command("serve", *words.split())

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"error: {told}")


@pytest.mark.parametrize("given", ["10.0.0.0/8", "::1", "fd00::/8"])
def test_proxies_are_addresses_or_networks(given: str) -> None:
    assert _address(f" {given} ") == given
