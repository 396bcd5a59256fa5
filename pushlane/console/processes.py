"""The page of what dispatches now, and of the formats that it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pushlane.console.pages import Ask, Page
from pushlane.operations.processes import GetFormats, ListProcesses, SetFormats
from pushlane.operations.session import Beside


async def _values(ask: Ask) -> Mapping[str, Any]:
    beside = Beside()
    return {
        "processes": await ask.do(ListProcesses()),
        "formats": await ask.do(GetFormats(), beside),
        "seen": beside.tag,
        "may_set_formats": ask.may(SetFormats),
    }


PROCESSES = Page("/processes", "Processes", "processes.html", ListProcesses, _values)
