"""Runs the emulator of a provider, which stands at the demo's receiving end in a webhook's stead.

Emulators are in the source tree, not in what is installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from pushlane.lanes.errors import BadInput

_ROOT = Path(__file__).resolve().parents[3]
_NEEDED = ("h2", "jwt")


class Provider(StrEnum):
    """The providers that the demo can send to."""

    FCM = "fcm"


def require_emulator(provider: Provider) -> None:
    """Raise BadInput unless the emulator of the provider is here."""
    if not (_ROOT / "tests" / "emulators" / f"{provider}.py").is_file():
        raise BadInput(
            f"the emulator of {provider} is in the source tree alone: run the demo from a checkout "
            "(git clone, then make demo), or leave --provider out"
        )
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise BadInput(
            f"the emulator of {provider} needs h2 and PyJWT: pip install 'pushlane[demo]'"
        )


@contextmanager
def emulated(
    provider: Provider, folder: Path, log: Path, delay_ms: float
) -> Iterator[dict[str, object]]:
    """Run the emulator, which logs what arrives; give the options of a sink that sends to it."""
    keys = folder / "keys"
    flags = ["--keys", str(keys), "--log", str(log), "--latency-ms", str(delay_ms)]
    command = [sys.executable, "-m", f"tests.emulators.{provider}", *flags]
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the emulator did not start: exit {process.wait()}")
        yield {
            "kind": provider.value,
            "endpoint": url,
            "credentials_file": str(keys / "service-account.json"),
        }
    finally:
        process.terminate()
        process.wait(timeout=10)
