"""`pool` shows the lanes that low tasks share and what is left on each, and sets their number."""

from __future__ import annotations

from typing import Annotated

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument
from pushlane.cli.render import Column, print_json, print_table
from pushlane.operations.pool import GetPool, PoolLane, SetPool
from pushlane.operations.views import plain

_COLUMNS: tuple[Column[PoolLane], ...] = (
    Column("LANE", lambda one: one.lane),
    Column("LEFT", lambda one: f"{one.left:,}", number=True),
    Column("TASKS", lambda one: str(one.tasks), number=True),
)


def pool(
    flags: Flags,
    lanes: Annotated[int | None, argument("[N]", "So many from now on, 1 to 1024.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the lanes that low tasks share, or change how many there are from now on."""
    wanted = GetPool() if lanes is None else SetPool(lanes=lanes)
    found = done(flags.settings(), wanted, create=lanes is not None)
    if as_json:
        print_json(plain(found))
    else:
        print_table(_COLUMNS, found.shared)
    if lanes is not None:
        note(f"low tasks that come from now on share {found.lanes} lanes")
    if beyond := [one.lane for one in found.shared[found.lanes :]]:
        some = ", ".join(beyond[:3]) + (" …" if beyond[3:] else "")
        note(f"{some}: no new task gets these, those that are there go on")
