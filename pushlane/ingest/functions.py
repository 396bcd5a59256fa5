"""Calls a mapping that runs somebody's code: in a thread, which cannot be ended once it hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from pushlane.core.errors import UserError
from pushlane.ingest.mapping import Leveled, ToContent
from pushlane.ingest.record import BadRecord, Record
from pushlane.producers.producer import Content
from pushlane.util.threads import Threads

_AT_ONCE = 4
Mapped = Content | Leveled | BadRecord | None


class Hung(UserError):
    """A mapping's function did not come back for a record."""


def mapped(of: ToContent, record: Record) -> Mapped:
    """Return the push of a record, or why it has none; None for one that is left out."""
    if record.value is None:
        return None
    try:
        return of(record)
    except BadRecord as error:
        return error
    except Exception as error:  # noqa: BLE001 - its message may hold what the record does
        return BadRecord(f"made the mapping raise {type(error).__name__}")


class InThread:
    """Calls a function record by record, each for at most `timeout_s`."""

    def __init__(
        self,
        of: ToContent,
        timeout_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._of = of
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._threads = Threads(_AT_ONCE, "mapping")

    async def __call__(self, records: Sequence[Record]) -> list[Mapped]:
        """Return what each record became. Raises Hung, which the process ends for."""
        at: list[Any] = [None, 0.0]

        def all_of() -> list[Mapped]:
            found = []
            for record in records:
                at[:] = record, self._clock_s()
                found.append(mapped(self._of, record))
            at[:] = None, 0.0  # the last one came back, though the loop may hear of it late
            return found

        running = asyncio.create_task(self._threads.run(all_of))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=self._timeout_s / 4)
                self._check(*at)
            return running.result()
        finally:
            running.cancel()

    def _check(self, record: Record | None, began_s: float) -> None:
        if record is not None and self._clock_s() - began_s > self._timeout_s:
            raise Hung(
                f"the mapping's function has not returned for {self._timeout_s:g} s, with record "
                f"{record.offset} of partition {record.partition}; this process ends, as a "
                "thread cannot be ended"
            )
