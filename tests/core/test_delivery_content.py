"""What a sink is given beside the push: its address there, and its payload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.core.push import Push, encode
from pushlane.model import task_changes
from tests.core.support import MemorySink, add_task, backend_in, drain


@pytest.mark.parametrize(
    ("fields", "address", "payload"),
    [
        ({}, "ann", None),
        ({"addresses": {"": "token-1"}}, "token-1", None),
        ({"addresses": {"default": "token-2", "": "token-1"}}, "token-2", None),
        ({"payloads": {"": {"a": 1}}}, "ann", {"a": 1}),
        ({"payloads": {"default": {"b": 2}, "sms": {}}}, "ann", {"b": 2}),
        ({"payloads": {"sms": {}}}, "ann", None),
    ],
)
async def test_a_sink_is_given_the_address_and_payload_that_are_for_it(
    tmp_path: Path, fields: dict[str, Any], address: str, payload: Any
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False)
        await backend.broker.publish(task.lane, [encode(Push(task.id, 1, "ann", **fields))])
        await backend.registry.change(task.id, task_changes.seal(1))
        sink = MemorySink()

        await drain(backend, sink, settings)

    [delivery] = sink.received
    assert (delivery.address, delivery.payload) == (address, payload)
