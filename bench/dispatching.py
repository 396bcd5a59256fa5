"""`pushlane dispatch` as a process of its own, quiet unless it fails, and stopped in any case."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from bench.backends import environment
from bench.certificates import Certificates, trusting
from bench.cpu import CpuMeter
from pushlane.core.errors import PushlaneError
from pushlane.settings import Settings

_STOP_S = 60.0
_DRAIN_S = 600.0
_LAST_LINES = 20


class Dispatching:
    """One running dispatcher. It ends with this process, too: it hears that its input has ended.

    It trusts the authority of the `certificates`, if there are any.
    """

    def __init__(
        self,
        settings: Settings,
        sink: str,
        *arguments: str,
        certificates: Certificates | None = None,
    ) -> None:
        self._said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read at its end
        command = [sys.executable, "-m", "pushlane", "dispatch", "--with-parent", "--sink", sink]
        self._process = subprocess.Popen(
            [*command, "--slots", str(settings.slots), *arguments],
            env=environment(settings) | trusting(certificates),
            stdin=subprocess.PIPE,
            stderr=self._said,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def has_started(self) -> bool:
        """Whether it has said that it dispatches."""
        self._said.seek(0)
        return " started: " in self._said.read()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM; raises PushlaneError when it did not end well."""
        if not self.has_ended:
            self._process.send_signal(signal.SIGTERM)
        self.wait(_STOP_S)

    def wait(self, timeout_s: float) -> None:
        """Until it ends by itself; raises PushlaneError when it did not end well, or in time."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._said.seek(0)
        last = "".join(self._said.readlines()[-_LAST_LINES:])
        if code:
            raise PushlaneError(f"a dispatcher ended with exit code {code}; it said:\n{last}")


@contextmanager
def dispatching(settings: Settings, sink: str, *arguments: str) -> Iterator[Dispatching]:
    """Dispatch meanwhile; stopped gently in the end."""
    process = Dispatching(settings, sink, *arguments)
    try:
        yield process
    finally:
        process.stop()


def drain(settings: Settings, sink: str) -> None:
    """Dispatch all that can move."""
    drain_metered(settings, sink)


def drain_metered(
    settings: Settings, sink: str, certificates: Certificates | None = None
) -> CpuMeter:
    """Dispatch all that can move, and return what CPU time that took."""
    process = Dispatching(settings, sink, "--drain", certificates=certificates)
    try:
        with CpuMeter(process.pid) as meter:
            process.wait(_DRAIN_S)
    except BaseException:
        process.stop()
        raise
    return meter
