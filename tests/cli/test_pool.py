"""`pool`: which lanes low tasks share, and how many."""

from __future__ import annotations

import pytest

from tests.command import Command


def test_it_lists_each_lane_with_what_is_left_on_it(command: Command) -> None:
    command("pool", "2")
    for count in (3, 40):  # each a bundle of up to 32 pushes
        command.submit("low", count)

    heading, *lines = command("pool").stdout.splitlines()

    assert heading.split() == ["LANE", "LEFT", "TASKS"]
    assert sorted(line.split()[1:] for line in lines) == [["1", "1"], ["2", "1"]]
    assert [line.split()[0] for line in lines] == ["pool-0", "pool-1"]


def test_a_smaller_pool_keeps_the_lanes_that_have_tasks(command: Command) -> None:
    command("pool", "3")
    for _ in range(3):
        command.submit("low")

    ran = command("pool", "1", "--json")

    assert [one["lane"] for one in ran.json["shared"]] == ["pool-0", "pool-1", "pool-2"]
    assert ran.json["lanes"] == 1
    assert "from now on share 1 lanes" in ran.stderr
    assert "pool-1, pool-2: no new task gets these" in ran.stderr


@pytest.mark.parametrize("lanes", ["0", "-3", "5000"])
def test_a_pool_that_cannot_be_is_refused_with_what_can(command: Command, lanes: str) -> None:
    ran = command("pool", lanes)

    assert ran.exit_code == 1
    assert f"pool size {lanes} is not from 1 to 1024" in ran.stderr
