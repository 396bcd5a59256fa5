"""Shows a few pushes of a dry run as they would be sent.

Recipients are masked unless they are asked for, wherever they stand in the texts too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pushlane.core.push import Push
from pushlane.model.receipt import masked_recipients
from pushlane.producers.dry_run import DryRun
from pushlane.producers.payloads import OTHERS


def samples(ran: DryRun, *, reveal: bool = False) -> list[dict[str, Any]]:
    """Return a few pushes of a dry run: seq, the sink that each goes to first, and what it has."""
    return [_sample(push, ran.task.chain, reveal=reveal) for push in ran.samples]


def by_sink(ran: DryRun) -> list[dict[str, Any]]:
    """Return the same pushes once for each sink that they may go to, with what is sent there."""
    return [
        _masked(push, {"recipient": push.address(sink), **_sent(push, sink)})
        | {"sink": sink, "seq": push.seq}
        for push in ran.samples
        for sink in ran.task.chain
        if push.address(sink)
    ]


def _sent(push: Push, sink: str) -> dict[str, Any]:
    payload = push.payload(sink)
    if payload is not None:
        return {"payload": payload}
    shown = {"title": push.title, "body": push.body, "data": push.data}
    return {name: value for name, value in shown.items() if value}


def _sample(push: Push, sinks: Sequence[str], *, reveal: bool) -> dict[str, Any]:
    shown = {
        "recipient": push.recipient,
        "title": push.title,
        "body": push.body,
        "data": push.data,
        "payload": {sink or OTHERS: one for sink, one in (push.payloads or {}).items()},
    }
    given = {name: value for name, value in shown.items() if value}
    return {
        "seq": push.seq,
        "sink": next((name for name in sinks if push.address(name)), sinks[0]),
        **(given if reveal else _masked(push, given)),
    }


def _masked(push: Push, shown: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown with masks of the push's recipient and addresses in their places."""
    personal = {push.recipient, *filter(None, (push.addresses or {}).values())}
    masks = dict(zip(personal, masked_recipients(list(personal)), strict=True))
    longest_first = sorted(map(re.escape, personal), key=len, reverse=True)
    found = re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)")

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            return found.sub(lambda one: masks[one[0]], value)
        if isinstance(value, Mapping):
            return {name: masked(one) for name, one in value.items()}
        if isinstance(value, list):
            return [masked(one) for one in value]
        return masks.get(str(value), value)

    return {name: masked(value) for name, value in shown.items()}
