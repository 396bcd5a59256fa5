"""Which tasks are stopped when too many of their pushes die, as their makers ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.task import Level, Task
from pushlane.model.stop_rule import DEFAULT_STOP
from pushlane.producers.producer import Producer
from pushlane.producers.replay import heir
from pushlane.producers.request import SubmitRequest
from pushlane.producers.task_builder import describe, new_task
from pushlane.settings import Settings


def made(**options: Any) -> Task:
    return new_task(SubmitRequest(source=[], level=Level.HIGH, **options), Settings())


def test_a_submit_is_stopped_at_half_of_the_first_thousand_unless_told() -> None:
    assert made().stop_if_dead == DEFAULT_STOP == "50% of the first 1000"
    assert made(stop_if_dead="5%").stop_if_dead == "5%"
    assert made(stop_if_dead="off").stop_if_dead == "off"


@pytest.mark.parametrize("wrong", [0.05, 0, True, None, "5"])
def test_what_is_no_share_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInput, match=r"stop.if.dead"):
        made(stop_if_dead=wrong)


def test_a_repeat_with_another_limit_is_the_same_submit() -> None:
    requests = [
        SubmitRequest(source=[], level=Level.HIGH, stop_if_dead=rule) for rule in ("", "5%")
    ]

    assert len({describe(request, Settings()) for request in requests}) == 1


def test_a_producer_is_not_stopped_unless_told(tmp_path: Path) -> None:
    settings = Settings(broker="embedded", data_dir=tmp_path)

    def rule(**options: Any) -> str:
        with Producer("orders", settings=settings, **options) as producer:
            return producer._task.stop_if_dead

    assert rule() == "off"
    assert rule(stop_if_dead="5%") == "5%"
    with pytest.raises(BadInput, match="has no %"):
        Producer("orders", settings=settings, stop_if_dead="5")


def test_who_takes_over_a_task_takes_its_limit_and_may_be_stopped_anew() -> None:
    old = Task(id="t", level=Level.HIGH, lane="task-t", stop_if_dead="5%", stopped=True)

    new = heir(old)

    assert (new.stop_if_dead, new.stopped) == ("5%", False)
