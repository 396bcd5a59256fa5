"""The parent of workers answers for all: workers are played by servers on Unix sockets."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import generate_latest as plain

from pushlane.cli.health import STUCK_S, Health
from pushlane.cli.health_server import HealthReply, served
from pushlane.cli.workers_health import WorkersHealth, socket_folder
from pushlane.core.errors import BadInput
from tests.backends.test_contact import Clock

Missing = Callable[[], list[str]]


class Crew:
    """Workers that can be started one by one, under one parent."""

    def __init__(self, folder: Path, count: int, stack: ExitStack) -> None:
        self.parent = Health(STUCK_S, None)
        self.workers = WorkersHealth(folder, count, STUCK_S)
        self.workers.answer_for(self.parent)
        stack.callback(self.workers.close)
        self._folder = folder
        self._stack = stack

    def start(self, index: int) -> Health:
        health = Health(STUCK_S, CollectorRegistry())
        health.missing = list
        Gauge("weight", "Its weight", registry=health.registry).set(index)
        self._stack.enter_context(served(health.answer, health.registry, self._folder / str(index)))
        return health

    def said(self, path: str) -> tuple[int, str]:
        self.workers.look()
        reply = self.parent.answer(path, {})
        return reply.status, reply.body.decode()


@pytest.fixture
def folder() -> Iterator[Path]:
    with socket_folder() as folder:
        yield folder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def crew(folder: Path) -> Iterator[Crew]:
    with ExitStack() as stack:
        yield Crew(folder, 2, stack)


def test_the_folder_is_private_and_gone_in_the_end() -> None:
    with socket_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    assert not folder.exists()


def test_a_folder_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    with (
        mock.patch("tempfile.tempdir", str(long)),
        pytest.raises(BadInput, match="set TMPDIR to a shorter one"),
        socket_folder(),
    ):
        pass


def test_it_starts_until_every_worker_has_answered(crew: Crew) -> None:
    crew.start(0)
    assert crew.said("/readyz") == (503, "starting\n")

    crew.start(1)
    assert crew.said("/readyz") == (200, "ready\n")


def test_what_a_worker_misses_is_said_with_its_name(crew: Crew) -> None:
    crew.start(0)
    crew.start(1).missing = lambda: ["broker: not reached since 12 s"]

    assert crew.said("/readyz") == (503, "worker 1: broker: not reached since 12 s\n")
    assert crew.said("/livez") == (200, "ok\n")


def test_what_is_the_matter_with_a_worker_that_is_ready_is_said_with_its_name(crew: Crew) -> None:
    crew.start(0)
    crew.start(1).remarks = lambda: ["sink app: receipts: their log has been behind for 12 s"]

    assert crew.said("/readyz") == (
        200,
        "ready\nworker 1: sink app: receipts: their log has been behind for 12 s\n",
    )


def test_a_worker_that_is_stuck_makes_the_parent_not_alive(crew: Crew) -> None:
    crew.start(0)
    crew.start(1).stuck = lambda: ["event loop: has not turned for 45 s"]

    assert crew.said("/livez") == (503, "worker 1: event loop: has not turned for 45 s\n")


def test_a_worker_that_has_ended_is_not_missed(crew: Crew) -> None:
    crew.start(0)
    crew.start(1).missing = lambda: ["stopping"]
    crew.workers.look()

    crew.workers.ended(1)

    assert crew.said("/readyz") == (200, "ready\n")
    assert 'pushlane_worker_up{worker="1"}' not in plain(crew.workers).decode()


def test_while_fewer_than_all_run_it_is_not_ready_and_says_why(folder: Path) -> None:
    with ExitStack() as stack:
        crew = Crew(folder, 2, stack)
        crew.start(0)
        with ExitStack() as first_life:
            serve(first_life, folder / "1")
            assert crew.said("/readyz") == (200, "ready\n")
        (folder / "1").unlink()

        crew.workers.restarts(1, "was killed by signal 9")

        told = (503, "worker 1: was killed by signal 9 and is started again\n")
        assert crew.said("/readyz") == told
        assert crew.said("/livez") == (200, "ok\n")
        crew.start(1)
        assert crew.said("/readyz") == (200, "ready\n")


def serve(stack: ExitStack, socket: Path) -> None:
    health = Health(STUCK_S, None)
    health.missing = list
    stack.enter_context(served(health.answer, CollectorRegistry(), socket))


def test_a_worker_that_waits_for_its_next_start_is_not_taken_for_stuck(
    folder: Path, clock: Clock
) -> None:
    parent, workers = Health(STUCK_S, None), WorkersHealth(folder, 1, STUCK_S, clock)
    workers.answer_for(parent)
    with ExitStack() as first_life:
        serve(first_life, folder / "0")
        workers.look()

    workers.restarts(0, "hung (exit code 5)")
    clock.now_s += 3_600  # a wait of an hour would not make it stuck
    workers.look()

    assert parent.answer("/livez", {}).status == 200
    assert (
        parent.answer("/readyz", {}).body == b"worker 0: hung (exit code 5) and is started again\n"
    )
    workers.close()


def test_how_often_a_worker_was_started_again_is_counted_from_nought(crew: Crew) -> None:
    crew.workers.restarts(1, "was killed by signal 9")
    crew.workers.restarts(1, "hung (exit code 5)")

    text = plain(crew.workers).decode()

    assert 'pushlane_worker_restarts_total{worker="0"} 0.0' in text
    assert 'pushlane_worker_restarts_total{worker="1"} 2.0' in text


def test_a_worker_that_is_silent_for_too_long_counts_as_stuck_but_not_at_a_stop(
    folder: Path, clock: Clock
) -> None:
    parent, workers = Health(STUCK_S, None), WorkersHealth(folder, 1, STUCK_S, clock)
    workers.answer_for(parent)
    worker = Health(STUCK_S, None)
    with served(worker.answer, CollectorRegistry(), folder / "0"):
        workers.look()
    workers.look()
    clock.now_s += STUCK_S + 1
    assert parent.answer("/livez", {}).body == b"worker 0: has not answered for 31 s\n"

    workers.contact.stopping()

    assert parent.answer("/livez", {}).body == b"ok\n"
    workers.close()


def test_a_stop_is_said(crew: Crew) -> None:
    crew.start(0)
    crew.start(1)
    crew.workers.contact.stopping()

    assert crew.said("/readyz") == (503, "stopping\n")
    assert crew.said("/livez") == (200, "ok\n")


def test_metrics_of_all_are_shown_and_who_did_not_answer(crew: Crew) -> None:
    crew.start(0)

    text = plain(crew.workers).decode()

    assert 'pushlane_worker_up{worker="0"} 1.0' in text
    assert 'pushlane_worker_up{worker="1"} 0.0' in text
    assert 'weight{worker="0"} 0.0' in text


def test_a_path_that_only_workers_know_is_answered_by_one_that_is_up(crew: Crew) -> None:
    worker = crew.start(1)
    worker.add_path("/drain", lambda query: HealthReply(200, query["sinks"].encode(), "text/x"))

    reply = crew.parent.answer("/drain", {"sinks": "a,b"})

    assert reply == HealthReply(200, b"a,b", "text/x")


def test_without_any_worker_such_a_path_is_not_available(crew: Crew) -> None:
    assert crew.parent.answer("/drain", {}).status == 503
