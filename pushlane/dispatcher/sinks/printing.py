"""Prints a line a push to standard output: level, push, recipient and text, in delivery order.

It is for trying things out. Whoever reads the output reads recipients and content.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from pushlane.core.push import DELIVERED, Arrival, Outcome
from pushlane.lanes.ports import Delivery
from pushlane.model.targets import PlainTarget

_LONGEST = 500


class PrintOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It has none."""

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> PrintSink:
        return PrintSink()

    def target(self) -> PlainTarget:
        return PlainTarget("print", delivers=False)


class PrintSink:
    """Writes from a thread, one batch at a time, so that a slow reader holds up nothing else."""

    name = "print"
    batch_size = 64
    mixes_tasks = True
    hosts_code = False

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        text = "".join(f"{_line(delivery)}\n" for delivery in batch)
        try:
            async with self._turn:
                await asyncio.to_thread(_print, text)
        except (OSError, ValueError):  # ValueError: it was closed by this process
            reason = "standard output is closed"
            return [Outcome.retry(reason, arrival=Arrival.REFUSED)] * len(batch)
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return


def _print(text: str) -> None:
    out = sys.stdout
    out.buffer.write(text.encode(out.encoding or "utf-8", "backslashreplace"))
    out.buffer.flush()


def _line(delivery: Delivery) -> str:
    push_id, to = delivery.push.push_id, delivery.address or delivery.push.recipient
    line = f"{delivery.level:<6}  {push_id}  {to}  {_content(delivery)}"
    shown = "".join(sign if sign.isprintable() else " " for sign in line[:_LONGEST])
    return f"{shown}…" if len(line) > _LONGEST else shown


def _content(delivery: Delivery) -> str:
    """Return title and body, and what else is sent as JSON."""
    push = delivery.push
    text = ": ".join(text for text in (push.title, push.body) if text)
    sent = {"data": push.data, "payload": delivery.payload}
    more = {name: value for name, value in sent.items() if value}
    if not more:
        return text
    return f"{text}  {msgspec.json.encode(more).decode()}".lstrip()
