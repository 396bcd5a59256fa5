"""`pushlane demo --provider`: the emulator as a process, and where there is none."""

import json

import pytest

from pushlane.cli.demo import provider
from pushlane.cli.demo.arrivals import Follower
from pushlane.cli.demo.provider import Provider, emulated, require_emulator
from pushlane.dispatcher.sinks import sink_options
from pushlane.lanes.errors import BadInput
from pushlane.lanes.ports import Delivery
from pushlane.lanes.push import DELIVERED, Push
from pushlane.lanes.task import Level


@pytest.mark.parametrize("one", Provider)
def test_what_is_installed_has_no_emulator(one, tmp_path, monkeypatch):
    require_emulator(one)
    monkeypatch.setattr(provider, "_ROOT", tmp_path)
    with pytest.raises(BadInput, match="run the demo from a checkout"):
        require_emulator(one)


def test_an_emulator_needs_its_libraries(monkeypatch):
    monkeypatch.setattr(provider, "_NEEDED", ("no_such_library",))
    with pytest.raises(BadInput, match=r"pip install 'pushlane\[demo\]'"):
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
