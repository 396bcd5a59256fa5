"""The page of who changed what, from what to what, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pushlane.console.naming import names_of
from pushlane.console.pages import Ask, Page
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Beside

_A_PAGE = 100


async def _values(ask: Ask) -> Mapping[str, Any]:
    find, cursor = ask.query.get("find", ""), ask.query.get("cursor", "")
    beside = Beside()
    found = await ask.do(ListAudit(find=find, limit=_A_PAGE, cursor=cursor), beside)
    more = {"find": find, "cursor": beside.next}
    subjects = [one.subject.partition("/") for one in found]
    return {
        "entries": found,
        "names": await names_of(ask, (name for kind, _, name in subjects if kind == "task")),
        "find": find,
        "is_first": not cursor,
        "older": urlencode({name: one for name, one in more.items() if one}) if beside.next else "",
        "newest": urlencode({"find": find} if find else {}),
    }


AUDIT = Page("/audit", "Audit", "audit.html", ListAudit, _values, query=("find", "cursor"))
