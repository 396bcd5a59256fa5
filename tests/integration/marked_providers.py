"""Emulators of providers as processes, and sinks that go there with marked pushes.

No marked address is one that a provider would take: what is tried is how they are refused.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.canary import Canaries
from tests.processes import ROOT

EMULATORS = ("fcm", "apns", "webpush", "gorush", "http_batch")
PROVIDERS = ("fcm", "apns", "webpush", "gorush", "batches", "denied")


@contextmanager
def providers(folder: Path, canaries: Canaries) -> Iterator[str]:
    """Start the emulators; give the tables of the sinks that go there."""
    with ExitStack() as ends:
        urls = {name: ends.enter_context(_running(name, folder / name)) for name in EMULATORS}
        yield _tables(folder, urls, canaries)


def signing_secret(canaries: Canaries) -> str:
    """A secret of Standard Webhooks that is marked."""
    return f"whsec_{base64.b64encode(canaries.word('signing-secret').encode()).decode()}"


@contextmanager
def _running(name: str, keys: Path) -> Iterator[str]:
    command = [sys.executable, "-m", f"tests.emulators.{name}", "--port", "0", "--keys", str(keys)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _tables(keys: Path, urls: dict[str, str], canaries: Canaries) -> str:
    mark = canaries.word
    gorush, batches = keys / "gorush", keys / "http_batch"
    tables = {
        "fcm": ("fcm", {"credentials_file": keys / "fcm" / "service-account.json"}, "endpoint"),
        "webpush": (
            "webpush",
            {"vapid_key_file": keys / "webpush" / "vapid.pem", "subject": "mailto:a@b.example"},
            "",
        ),
        "gorush": (
            "gorush",
            {"authorization_file": gorush / "authorization", "platform": "android"},
            "url",
        ),
        "batches": (
            "http",
            {
                "authorization_file": batches / "authorization",
                "secrets_file": batches / "secrets",
            },
            "url",
        ),
        "denied": (
            "http",
            {"authorization": mark("denied"), "secrets": signing_secret(canaries)},
            "url",
        ),
    }
    text = (keys / "apns" / "pushlane.toml").read_text()
    for name, (kind, options, url) in tables.items():
        given = options | ({url: urls[_emulator(name)]} if url else {})
        lines = "".join(f'{option} = "{value}"\n' for option, value in given.items())
        text += f'[sinks.{name}]\nkind = "{kind}"\n{lines}'
    return text


def _emulator(sink: str) -> str:
    return "http_batch" if sink in ("batches", "denied") else sink
