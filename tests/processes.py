"""`pushlane` as real processes, for tests: commands, dispatchers to be killed, and a webhook.

The webhook's log alone says what was delivered; nothing here looks into a backend. Each test has a
store, or a Pulsar namespace, of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dev.receiver import Follower, running
from tests.command import Ran, make_store, run_here

ROOT = Path(__file__).parents[1]
DEADLINE_S = 200.0
_WITH_SPARK = ("fanout", "pipeline", "rules", "alerts")
NOT_COUNTED_S = 0.05
"""For how long the outcome of a push may wait to be counted: a kill repeats those."""
_LOOK_EVERY_S = 0.01

Push = tuple[str, int]


class Running:
    """A `pushlane` process that goes on; what it says is read as it comes."""

    def __init__(self, command: list[str], env: Mapping[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """What it has said on stderr."""
        return "".join(self._lines)

    @property
    def output(self) -> str:
        """What it printed; to be asked once, after its end."""
        assert self._process.stdout is not None
        return self._process.stdout.read().strip()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def times(self, action: str) -> int:
        """How often it has logged the action, with its workers."""
        return self.text.count(f'"action": "{action}"')

    def until(self, action: str, times: int = 1) -> None:
        """Wait until the action was logged so often."""
        with self._said:
            self._said.wait_for(
                lambda: self.times(action) >= times or not self._reader.is_alive(), DEADLINE_S
            )
        assert self.times(action) >= times, f"no {action!r} so far:\n{self.text}"

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """The exit code, once it and all its workers have ended."""
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"it goes on after {deadline_s:g} s:\n{self.text}") from late
        self.workers_end()
        return code

    def workers_end(self) -> None:
        """Wait until nobody holds its stderr any more."""
        self._reader.join(DEADLINE_S)
        assert not self._reader.is_alive(), f"a worker lives on:\n{self.text}"

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._said:
                self._lines.append(line)
                self._said.notify_all()
        with self._said:
            self._said.notify_all()


class Pushlane:
    """Runs `pushlane` commands on one backend, in a folder of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PUSHLANE_")}
        named = {f"PUSHLANE_{name.upper()}": value for name, value in settings.items()}
        self.folder = folder
        self.settings = settings
        self._env = {**kept, **named, "PYTHONPATH": str(ROOT)}
        self._started: list[Running] = []

    @property
    def is_embedded(self) -> bool:
        return self.settings["broker"] == "embedded"

    def ran(self, *arguments: str | Path) -> Ran:
        """A command that has ended, however it did.

        One that starts no Spark runs in this process: to start a process takes longer than most
        commands do.
        """
        if arguments[0] in _WITH_SPARK:
            ran = subprocess.run(
                self._command(*arguments),
                env=self._env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            return Ran(ran.returncode, ran.stdout, ran.stderr)
        with mock.patch.dict(os.environ, self._env, clear=True), chdir(self.folder):
            return run_here(*arguments)

    def __call__(self, *arguments: str | Path) -> str:
        """What a command printed that must succeed."""
        ran = self.ran(*arguments)
        assert ran.exit_code == 0, ran.stderr
        return ran.stdout.strip()

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self(*arguments, "--json"))

    def start(self, *arguments: str | Path) -> Running:
        """A command that goes on; killed at the end of the test."""
        self._started.append(Running(self._command(*arguments), self._env, self.folder))
        return self._started[-1]

    def dispatch(self, *arguments: str) -> Running:
        return self.start("dispatch", "--log-format", "json", *arguments)

    def drain(self, sink: str, *arguments: str) -> None:
        """Deliver all that is left."""
        draining = self.dispatch("--drain", "--sink", sink, *arguments)
        try:
            code = draining.wait()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.ran('why').stdout}") from error
        assert code == 0, draining.text

    def rows(self, count: int) -> Path:
        """A CSV file of so many rows."""
        path = self.folder / f"{count}.csv"
        lines = "".join(f"device-{number},user {number}\n" for number in range(1, count + 1))
        path.write_text(f"recipient,name\n{lines}")
        return path

    def submit(self, level: str, count: int, *arguments: str) -> str:
        """The id of a new task of so many pushes."""
        return self("submit", self.rows(count), "--level", level, "--title", "Hi", *arguments)

    def task(self, task_id: str) -> dict[str, Any]:
        return self.json("task", "show", task_id)

    def end_all(self) -> None:
        for process in self._started:
            if not process.has_ended:
                process.kill()

    def _command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "pushlane", *map(str, arguments)]


class Received(Follower):
    """What the receiving end got, by its own log. `sink` is how a dispatcher sends there."""

    def __init__(self, log: Path, sink: str) -> None:
        super().__init__(log)
        self.sink = sink

    @property
    def pushes(self) -> Counter[Push]:
        """How often each push has arrived."""
        self.read()
        return Counter((arrival.task, arrival.seq) for arrival in self.arrivals)

    @property
    def duplicates(self) -> int:
        pushes = self.pushes
        return pushes.total() - len(pushes)

    def count(self) -> int:
        """Arrivals up to now."""
        self.read()
        return len(self.arrivals)

    def until(self, count: int, *sending: Running) -> None:
        """Wait until so many have arrived; fails when all who might send have ended."""
        self._until(self.count, count, sending)

    def until_of(self, task: str, count: int, *sending: Running) -> None:
        """The same for one task's arrivals."""
        self._until(lambda: self.of(task), count, sending)

    def busiest(self, window_s: float) -> int:
        """The most arrivals within so many seconds."""
        times = sorted(arrival.at_s for arrival in self.arrivals)
        first = most = 0
        for last, at_s in enumerate(times):
            while times[first] < at_s - window_s:
                first += 1
            most = max(most, last - first + 1)
        return most

    def of(self, task: str) -> int:
        """Arrivals of one task up to now."""
        self.read()
        return self.counts[task]

    def _until(self, arrived: Callable[[], int], count: int, sending: Sequence[Running]) -> None:
        until(lambda: arrived() >= count or all(each.has_ended for each in sending))
        said = "\n".join(each.text for each in sending)
        assert arrived() >= count, f"{arrived()} of {count} arrived:\n{said}"


def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Wait for something outside of this process that sends no signal. The only waiting by the
    clock in these tests: a file that another process appends to can but be looked at again.
    """
    never = threading.Event()
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s"
        never.wait(_LOOK_EVERY_S)


def each_once(totals: Mapping[str, int]) -> Counter[Push]:
    """All pushes of tasks with these totals, each arriving once."""
    return Counter((task, seq) for task, total in totals.items() for seq in range(1, total + 1))


@pytest.fixture(params=["embedded", pytest.param("pulsar", marks=pytest.mark.pulsar)])
def pushlane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pushlane]:
    """Commands on an empty backend whose low tasks share one lane."""
    settings = {"broker": "embedded", "data_dir": str(tmp_path / "store")}
    if request.param == "pulsar":
        on_pulsar = request.getfixturevalue("pulsar_settings")
        named = {"broker", "admin_url", "redis_url", "namespace", "data_dir"}
        settings = {name: str(getattr(on_pulsar, name)) for name in named}
    if request.param == "embedded":
        make_store(Path(settings["data_dir"]))
    commands = Pushlane(tmp_path, settings | {"pool_lanes": "1"})
    yield commands
    commands.end_all()


@pytest.fixture
def deliveries(tmp_path: Path) -> Received:
    """The `log` sink, where deliveries take no time. Not for a process that is killed: the line
    that it writes at that moment may be torn.
    """
    log = tmp_path / "deliveries.jsonl"
    return Received(log, f"log:{log}")


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[Callable[..., Received]]:
    """Starts a webhook that answers after so many milliseconds.

    With `honour=True` it takes an Idempotency-Key that comes again for what it is; it answers 500
    to the first `refuse` attempts at every second push (if it did to all, it would be rested), and
    `status` to all others.
    """
    with ExitStack() as ends:

        def start(delay_ms: float, **options: Any) -> Received:
            log = tmp_path / f"webhook-{uuid.uuid4().hex[:6]}.jsonl"
            url = ends.enter_context(running(log, delay_ms, **options))
            return Received(log, f"webhook:{url}")

        yield start


@pytest.fixture
def receiver(request: pytest.FixtureRequest, webhook: Callable[..., Received]) -> Received:
    """A webhook that answers after 2 ms, or as many as the mark `answers_after` says."""
    mark = request.node.get_closest_marker("answers_after")
    return webhook(mark.args[0] if mark else 2)
