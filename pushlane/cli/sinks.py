"""`sinks` lists the sinks of the settings, and shows, tries and accepts one of them.

What live processes deliver to is compared with the settings of this shell. Secrets are masked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from pushlane.backends.backend import Backend, connect
from pushlane.backends.ports import TaskQuery
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, Group, JsonFlag, on_backend, option, switch
from pushlane.cli.processes import resting_text
from pushlane.cli.render import Column, picked, print_fields, print_json, print_table
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push
from pushlane.core.task import ACTIVE_STATES, Level, Task, now_ms
from pushlane.dispatcher.sinks import OVER_HTTP, require_options
from pushlane.dispatcher.sinks.named import find_sink, open_sinks, require_sink, target_in
from pushlane.dispatcher.stats import without_values
from pushlane.model.names import new_task_id
from pushlane.model.presence import (
    LiveTarget,
    Process,
    SinkTarget,
    difference,
    live_texts,
    process_names,
    split_sinks,
    targets_by_sink,
    told_apart,
)
from pushlane.model.targets import PlainTarget, SinkTargets, target_history
from pushlane.model.targets import accept as accept_target
from pushlane.settings import Settings
from pushlane.settings.sinks import option_of

_WITHIN_S = 5.0


class LiveSinks(NamedTuple):
    """The live processes, and what these settings' sinks deliver to, as far as that can be told."""

    processes: Sequence[Process]
    mine: dict[str, SinkTarget]

    def targets(self, name: str) -> list[LiveTarget]:
        """Return what live processes deliver a sink's pushes to."""
        return targets_by_sink(self.processes).get(name, [])

    def text(self, name: str) -> str:
        """Return what delivers a sink's pushes now, and to where."""
        if found := self.targets(name):
            return "; ".join(live_texts(found))
        serving = [one for one in self.processes if name in one.sink_names]
        return f"not known, by {process_names(serving)}" if serving else "nobody serves it"

    def difference(self, name: str) -> str | None:
        """Say that these settings lead elsewhere than live processes do; None if they do not."""
        return difference(name, self.mine.get(name), self.targets(name))


async def load_live(backend: Backend, settings: Settings) -> LiveSinks:
    """Look at the live processes, and at what these settings' sinks deliver to.

    Nothing is written where no live process says what it delivers to.
    """
    processes = await backend.presence.list()
    mine: dict[str, SinkTarget] = {}
    if targets_by_sink(processes):
        targets = SinkTargets(backend.documents)
        await targets.load()
        for name in settings.served:
            try:
                found = targets.of(target_in(settings, name))
            except BadInput:  # whoever opens the sink says what is wrong with it
                continue
            if found is not None:
                mine[name] = found
    return LiveSinks(processes, mine)


async def live_if_any(settings: Settings) -> LiveSinks | None:
    """Return what is live, or None where there is no store yet, or none that answers in time."""
    if settings.is_store_missing:
        return None
    try:
        async with asyncio.timeout(_WITHIN_S), connect(settings) as backend:
            return await load_live(backend, settings)
    except (PushlaneError, TimeoutError):
        return None


def accept(
    flags: Flags,
    name: Annotated[str, typer.Argument(metavar="SINK")],
    undo: Annotated[bool, switch("--undo", "Believe them no longer.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Believe a sink that has never delivered and gives final answers, like HTTP 404, to all.

    It rests, as its URL may be wrong. From now on its pushes die by such answers, in every process,
    until it delivers. It is about what live processes deliver to, else about these settings.
    """
    settings = flags.settings()

    async def apply(backend: Backend) -> list[SinkTarget]:
        targets = await _new_targets(backend, name, await _targets(backend, settings, name))
        for one in targets:
            await accept_target(backend.documents, one.hash, 0 if undo else now_ms())
        return targets

    targets = on_backend(settings, apply)
    if as_json:
        found = [msgspec.to_builtins(one) for one in targets]
        print_json({"sink": name, "accepted": not undo, "targets": found})
    for one in targets:
        if undo:
            note(f"sink {name}: once {one} gives final answers to 20 pushes in a row, it rests")
        else:
            note(
                f"sink {name}: pushes die by the final answers of {one} until it delivers; to take "
                f"that back: pushlane sinks accept {name} --undo"
            )


async def _targets(backend: Backend, settings: Settings, name: str) -> list[SinkTarget]:
    """Return what live processes deliver to by this name, else what the settings say.

    Raises:
        BadInput: no process or setting says what the sink delivers to.
    """
    processes = [one for one in await backend.presence.list() if name in one.sink_names]
    known = [one.at(name).target for one in processes]
    announced = {one.hash: one for one in known if one is not None and one.delivers}
    if announced:
        return list(announced.values())
    if processes:
        raise BadInput(
            f"the processes that serve sink {name} deliver to nothing whose answers could be "
            "accepted, or are of an older version"
        )
    targets = SinkTargets(backend.documents)
    await targets.load()
    plain = target_in(settings, name)
    target = targets.of(plain)
    if target is None or not target.delivers:
        raise BadInput(
            f"no live process serves sink {name}, and in these settings it is {plain.kind}, which "
            "delivers nothing; start pushlane dispatch with its sink first"
        )
    return [target]


async def _new_targets(
    backend: Backend, name: str, targets: Sequence[SinkTarget]
) -> list[SinkTarget]:
    """Return those that have never delivered: while a rollout lasts, others may be there too.

    Raises:
        BadInput: all of them have delivered.
    """
    histories = [await target_history(backend.documents, one.hash) for one in targets]
    new = [
        one for one, history in zip(targets, histories, strict=True) if not history.delivered_at_ms
    ]
    if not new:
        raise BadInput(
            f"sink {name}: {targets[0]} has delivered before, so there is nothing to accept; if it "
            "gives final answers to all now, it rests, and is believed after two hours"
        )
    return new


_LOOKED_AT = 1_000
_INSTEAD = {
    "null": "throws pushes away",
    "print": "only prints pushes",
    "log": "only writes pushes to a file",
}
_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("SINK", lambda row: row["sink"]),
    Column("KIND", lambda row: row["kind"]),
    Column("SLOTS", lambda row: str(row["slots"]), number=True),
    Column("SERVED BY", lambda row: str(row["served_by"]), number=True),
    Column("STATE", lambda row: row["state"], elastic=True),
)


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """List the sinks that tasks can go to, who serves each, and whether it rests."""
    settings = flags.settings()

    async def load(backend: Backend) -> tuple[LiveSinks, list[Task]]:
        newest = await backend.registry.page(TaskQuery(ACTIVE_STATES), most=_LOOKED_AT)
        return await load_live(backend, settings), newest.tasks

    live, tasks = on_backend(settings, load)
    rows = [_row(settings, name, live, tasks) for name in _names(settings, live.processes, tasks)]
    if as_json:
        print_json(rows)
        return
    print_table(_COLUMNS, rows)
    for text in split_sinks(live.processes).values():
        note(f"warning: {text}")
    for line in resting_text(live.processes):
        note(line)
    for row in rows:
        if row["differs"]:
            note(row["differs"])


def show(
    flags: Flags, name: Annotated[str, typer.Argument(metavar="SINK")], as_json: JsonFlag = False
) -> None:
    """Show what the settings say of a sink, its options masked, and what it delivers to now."""
    settings = flags.settings()
    shown = _described(settings, name)
    _warn(settings, name)
    if (live := asyncio.run(live_if_any(settings))) is not None:
        shown["live"] = live.text(name)
        _tell_difference(live, name)
    if as_json:
        print_json(shown)
    else:
        print_fields(
            (field, "-" if value is None else str(value)) for field, value in shown.items()
        )


def test(
    flags: Flags,
    name: Annotated[str, typer.Argument(metavar="SINK")],
    to: Annotated[str | None, option("ADDRESS", "Send one push to this address.")] = None,  # noqa: PT028
    as_json: JsonFlag = False,  # noqa: PT028
) -> None:
    """Open a sink by this shell's settings, and with --to send one push through it.

    Exit code 0 when it was delivered (without --to: when it could be opened), 3 when the sink did
    not answer or was busy, 1 for all else, as when it refuses the credentials.
    """
    settings = flags.settings()
    target = target_in(settings, name)
    with redirect_stdout(sys.stderr if as_json else sys.stdout):  # of a sink that prints
        outcome = asyncio.run(_tried(settings, name, to))
    if as_json:
        print_json(_tried_json(name, target, outcome))
    _warn(settings, name)
    if (live := asyncio.run(live_if_any(settings))) is not None:
        _tell_difference(live, name, "; this test goes by this shell's settings")
    if outcome is None:
        note(f"sink {name} ({target}) can be opened; --to ADDRESS sends one push")
    elif outcome.kind is Kind.DELIVERED and target.delivers:
        note(f"sink {name} ({target}) has delivered one push")
    elif outcome.kind is Kind.DELIVERED:
        note(f"sink {name} {_instead(target.kind)}: nothing was delivered")
    elif outcome.refuses_us:
        raise BadInput(f"sink {name} did not take the push: {outcome.reason}")
    elif outcome.scope is not None and outcome.kind is Kind.RETRY:
        raise Unreachable(f"sink {name} did not take the push: {outcome.reason}")
    elif _is_silent(outcome, _kind(settings, name)):
        raise Unreachable(f"sink {name} did not answer: {outcome.reason}")
    else:
        raise BadInput(f"sink {name} did not deliver the push: {outcome.kind}, {outcome.reason}")


def _tried_json(name: str, target: PlainTarget, outcome: Outcome | None) -> dict[str, Any]:
    """Return what became of the one push; without one the outcome and its reason are None."""
    return {
        "sink": name,
        **picked(target, "kind", "host"),
        "outcome": outcome and outcome.kind.value,
        "reason": (outcome and outcome.reason) or None,
        "delivered": bool(outcome and outcome.kind is Kind.DELIVERED and target.delivers),
    }


def _instead(kind: str) -> str:
    return _INSTEAD.get(kind, "only checks pushes (a dry run)")


def _tell_difference(live: LiveSinks, name: str, more: str = "") -> None:
    if difference := live.difference(name):
        note(f"{difference}{more}")


def _warn(settings: Settings, name: str) -> None:
    """Say which files of its options others can read."""
    if name != DEFAULT_SINK:
        for said in find_sink(settings, name).files_open_to_others():
            note(f"warning: {said}")


def _is_silent(outcome: Outcome, kind: str) -> bool:
    """Tell whether no answer came; a function of yours that failed has answered."""
    timed_out = outcome.kind is Kind.DEAD
    return outcome.arrival is Arrival.UNKNOWN and (timed_out or kind in OVER_HTTP)


async def _tried(settings: Settings, name: str, to: str | None) -> Outcome | None:
    sinks = open_sinks(settings, (name,))
    sink = sinks[name]
    try:
        if to is None:
            return None
        push = Push(new_task_id(), 1, to, "pushlane", "This is a test of a sink.")
        batch = [Delivery(push, Level.HIGH, to)]
        [outcome] = without_values(await sink.deliver(batch), batch)
        return outcome
    finally:
        await sink.close()


def _names(settings: Settings, processes: Sequence[Process], tasks: Sequence[Task]) -> list[str]:
    served = {name for process in processes for name in process.sink_names}
    used = {name for task in tasks for name in task.chain}
    return list(dict.fromkeys([*settings.served, *sorted(served), *sorted(used)]))


def _row(settings: Settings, name: str, live: LiveSinks, tasks: Sequence[Task]) -> dict[str, Any]:
    serving = [one for one in live.processes if name in one.sink_names and not one.is_starting]
    targets = live.targets(name)
    kinds = told_apart([one.target for one in targets])
    is_known = name in settings.served
    kind_here = _kind(settings, name) if is_known else "not in these settings"
    if serving:
        state = _state(name, serving, targets)
    else:
        state = _problem(settings, name) or "nobody serves it" + _waiting(name, tasks)
    return {
        "sink": name,
        "kind": ", ".join(kinds) or kind_here,
        "slots": settings.of_sink(name).slots if is_known else "-",
        "served_by": len(serving),
        "state": state,
        "targets": [msgspec.to_builtins(one.target) for one in targets],
        "differs": live.difference(name),
    }


def _problem(settings: Settings, name: str) -> str:
    """Return what is wrong with the settings of a sink, empty for nothing and for one they lack."""
    if name not in settings.sinks:
        return ""
    try:
        _described(settings, name)
    except BadInput as error:
        return str(error)
    return ""


def _waiting(name: str, tasks: Sequence[Task]) -> str:
    """Tell how many of these tasks begin at this sink, else how many may go on to it."""
    if first := sum(name == task.chain[0] for task in tasks):
        return f", {first:,} tasks wait" if first > 1 else ", 1 task waits"
    if later := sum(name in task.chain for task in tasks):
        return f", {later:,} tasks may go on to it" if later > 1 else ", 1 task may go on to it"
    return ""


def _state(name: str, serving: Sequence[Process], targets: Sequence[LiveTarget]) -> str:
    if len(targets) > 1:
        return f"{len(targets)} different targets"
    stands = [process.at(name).resting for process in serving]
    if resting := {one.why for one in stands if one is not None}:
        return "; ".join(sorted(resting))
    if all(one.target.delivers for one in targets):
        return "delivers"
    return _instead(targets[0].target.kind)


def _kind(settings: Settings, name: str) -> str:
    if name == DEFAULT_SINK:
        return settings.sink.partition(":")[0]
    return settings.sinks[name].kind


def _described(settings: Settings, name: str) -> dict[str, Any]:
    if name == DEFAULT_SINK:
        require_sink(settings, name)
        return {"kind": _kind(settings, name), "slots": settings.slots}
    own = find_sink(settings, name)
    require_options(own.kind, map(option_of, own.options), f"sink {name}")
    held = settings.of_sink(name)
    shown = {
        "kind": own.kind,
        "slots": held.slots,
        "least_slots": own.least_slots,
        "timeout_s": held.sink_timeout_s,
        **picked(own, "retry_timeouts", "rate_per_s", "in_flight", "cost"),
    }
    return shown | own.shown_options()


sinks = Group("Look at the sinks of the settings, and try them.", (list_, show, test, accept))
