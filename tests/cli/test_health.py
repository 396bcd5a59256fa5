"""What a process answers about itself: it lives while its loop turns, and says what it misses."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pushlane.backends.contact import SILENT_S
from pushlane.cli.health import STUCK_S, Health, stuck_after_s
from pushlane.cli.health_server import HealthReply
from pushlane.settings import Settings
from tests.backends.test_contact import Clock


def said(health: Health, path: str) -> tuple[int, str]:
    reply = health.answer(path, {})
    return reply.status, reply.body.decode()


def test_before_its_loop_runs_it_lives_and_is_not_ready() -> None:
    clock = Clock()
    health = Health(STUCK_S, None, clock)
    clock.now_s += 1_000

    assert said(health, "/livez") == (200, "ok\n")
    assert said(health, "/readyz") == (503, "starting\n")


async def test_a_loop_that_turns_lives_and_is_ready_when_nothing_is_missing() -> None:
    health = Health(STUCK_S, None)
    health.missing = list
    async with health.beating():
        await asyncio.sleep(0)

        assert said(health, "/livez") == (200, "ok\n")
        assert said(health, "/readyz") == (200, "ready\n")


async def test_a_loop_that_stands_still_is_soon_not_ready_and_at_last_dead() -> None:
    clock = Clock()
    health = Health(STUCK_S, None, clock)
    health.missing = lambda: ["broker: not reached since 9 s"]  # it could not have heard
    async with health.beating():
        await asyncio.sleep(0)
        clock.now_s += SILENT_S + 1
        assert said(health, "/livez") == (200, "ok\n")
        assert said(health, "/readyz") == (503, "event loop: has not turned for 7 s\n")

        clock.now_s += STUCK_S
        assert said(health, "/livez") == (503, "event loop: has not turned for 37 s\n")

    await asyncio.sleep(0)
    assert said(health, "/livez") == (200, "ok\n")  # the loop has ended as it should


def test_what_is_missing_is_said_line_by_line_and_kills_nobody() -> None:
    health = Health(STUCK_S, None)
    health.missing = lambda: ["broker: not reached since 12 s", "registry: not reached since 9 s"]

    assert said(health, "/readyz") == (
        503,
        "broker: not reached since 12 s\nregistry: not reached since 9 s\n",
    )
    assert said(health, "/livez") == (200, "ok\n")


def test_what_is_the_matter_and_keeps_it_from_nothing_is_said_below_ready() -> None:
    health = Health(STUCK_S, None)
    health.missing = list
    health.remarks = lambda: ["sink app: receipts: their log has been behind for 12 s"]

    assert said(health, "/readyz") == (
        200,
        "ready\nsink app: receipts: their log has been behind for 12 s\n",
    )

    health.missing = lambda: ["stopping"]
    assert said(health, "/readyz") == (503, "stopping\n")


def test_an_unknown_path_names_those_there_are() -> None:
    health = Health(STUCK_S, None)
    health.add_path("/drain", lambda query: HealthReply.of_lines(200, *query))

    status, text = said(health, "/nosuch")

    assert status == 404
    assert text == "there is no /nosuch; there are /livez, /readyz, /drain, /metrics\n"
    assert said(health, "/drain") == (200, "")


def test_a_processor_may_block_the_loop_for_as_long_as_its_sink_may_take(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, sink_timeout_s=120.0)

    assert stuck_after_s(settings, ["default"]) == 130.0
    assert stuck_after_s(settings) == STUCK_S
