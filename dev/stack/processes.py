"""Starts programs that outlive us, and stops exactly those.

A pid file holds the pid with the time when that process started, so that a pid which the system
gave to somebody else is never taken for ours. Nothing is ever stopped by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pushlane.core.errors import Unreachable, UserError

TERM_PATIENCE_S = 20.0
KILL_PATIENCE_S = 5.0
POLL_S = 0.05
TAIL_LINES = 15


class Processes:
    """The programs of one run folder, each with NAME.pid and NAME.log there."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def launch(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Start it in a session of its own, out of reach of our terminal's Ctrl-C."""
        with self._log(name).open("wb") as log:
            try:
                child = subprocess.Popen(
                    argv,
                    env={**os.environ, **env},
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(f"{argv[0]} cannot be started: {error}") from error
        try:
            self._pid_file(name).write_text(f"{child.pid} {_started(child.pid)}\n")
        except BaseException:
            child.kill()
            raise
        child.returncode = 0  # from here on the pid file looks after it, not this object

    def is_running(self, name: str) -> bool:
        return self._pid(name) is not None

    def send(self, name: str, number: signal.Signals) -> None:
        """Send it a signal, with all that it has started. Harmless when it does not run."""
        if (pid := self._pid(name)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def end(self, name: str) -> None:
        """TERM, then KILL. Harmless when it does not run.

        Raises:
            Unreachable: it is still there after both.
        """
        pid = self._pid(name)
        self._signal(name, signal.SIGTERM, TERM_PATIENCE_S)
        if self.is_running(name):
            self._signal(name, signal.SIGKILL, KILL_PATIENCE_S)
        if self.is_running(name):
            raise Unreachable(f"{name} (pid {pid}) does not end; look at it with ps")
        self._pid_file(name).unlink(missing_ok=True)

    def log_tail(self, name: str) -> str:
        try:
            lines = self._log(name).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(it has no log)"
        return "\n".join(lines[-TAIL_LINES:]) or "(it is empty)"

    def _signal(self, name: str, number: signal.Signals, patience_s: float) -> None:
        self.send(name, number)
        until = time.monotonic() + patience_s
        while self.is_running(name) and time.monotonic() < until:
            time.sleep(POLL_S)

    def _pid(self, name: str) -> int | None:
        """The pid of the program, None when it does not run (any more)."""
        try:
            pid, started = self._pid_file(name).read_text().split(maxsplit=1)
        except (FileNotFoundError, ValueError):
            return None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(int(pid), os.WNOHANG)  # a child of ours that has ended looks alive till then
        return int(pid) if _started(int(pid)) == started.strip() else None

    def _pid_file(self, name: str) -> Path:
        return self._run_dir / f"{name}.pid"

    def _log(self, name: str) -> Path:
        return self._run_dir / f"{name}.log"


def _started(pid: int) -> str:
    """When the process started, in whatever form this system tells it; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[19]  # ticks from boot to start: proc(5), field 22
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self").exists():
            return ""
    shown = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()
