"""`pushlane demo --provider`: the emulator as a process."""

import json

import pytest

from dev import receiver
from dev.receiver import Follower, Provider, emulated, require_emulator
from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options


def test_an_emulator_needs_its_libraries(monkeypatch):
    require_emulator(Provider.FCM)
    monkeypatch.setattr(receiver, "_NEEDED", ("no_such_library",))
    with pytest.raises(BadInput, match=r"pip install -e '\.\[demo\]'"):
        require_emulator(Provider.FCM)


async def test_what_arrives_is_logged_by_its_task_and_without_an_address(tmp_path):
    log = tmp_path / "app.jsonl"
    with emulated(Provider.FCM, tmp_path, log, 0.0) as options:
        file = tmp_path / "keys" / "service-account.json"
        assert file.stat().st_mode & 0o077 == 0
        given = {"credentials": file.read_text(), "endpoint": options["endpoint"]}
        sink = sink_options("fcm", given, "sink app").open(1, 30.0, False)
        push = Push("id", 7, "r", "T", "B", {"task": "news", "seq": 7, "level": "high"})
        assert await sink.deliver([Delivery(push, Level.HIGH, "device-7")]) == [DELIVERED]
        await sink.close()
    follower = Follower(log)
    follower.ids["news"] = "id"
    [line] = follower.read()
    assert (line.task, line.seq, line.level) == ("id", 7, "high")
    assert json.loads(log.read_text()).keys() == {"task", "seq", "level", "at_ms"}
