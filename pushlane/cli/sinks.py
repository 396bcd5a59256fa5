"""`sinks` lists the sinks of the settings, and shows, tries and accepts one of them.

What live processes deliver to is compared with the settings of this shell. Secrets are masked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any, NamedTuple

import typer

from pushlane.backends.backend import Backend, connect
from pushlane.cli.doing import CommandLine, on_client
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, Group, JsonFlag, option, switch
from pushlane.cli.processes import resting_text
from pushlane.cli.render import Column, picked, print_fields, print_json, print_table
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import OVER_HTTP, require_options
from pushlane.dispatcher.sinks.named import (
    find_sink,
    open_sinks,
    options_in,
    require_sink,
    target_in,
)
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
)
from pushlane.model.targets import PlainTarget, SinkTargets
from pushlane.operations.examining import targets_of
from pushlane.operations.processes import ListProcesses
from pushlane.operations.sinks import (
    UNSERVED,
    AcceptedView,
    AcceptSink,
    ListSinks,
    SinkView,
    instead,
)
from pushlane.operations.views import plain
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
    return LiveSinks(await backend.presence.list(), await targets_of(backend, settings))


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

    async def apply(client: CommandLine) -> AcceptedView:
        served = {one for each in await client.do(ListProcesses()) for one in each.sink_names}
        is_known = name in served or client.remote is not None
        here = None if is_known else await _target_here(client.backend, settings, name)
        return await client.do(AcceptSink(sink=name, undo=undo, target=here))

    found = on_client(settings, apply)
    if as_json:
        print_json(plain(found))
    for one in found.targets:
        if undo:
            note(f"sink {name}: once {one} gives final answers to 20 pushes in a row, it rests")
        else:
            note(
                f"sink {name}: pushes die by the final answers of {one} until it delivers; to take "
                f"that back: pushlane sinks accept {name} --undo"
            )


async def _target_here(backend: Backend, settings: Settings, name: str) -> SinkTarget:
    """Return what a sink that nobody serves delivers to by the settings.

    Raises:
        BadInput: there is no such sink, or it delivers nothing.
    """
    targets = SinkTargets(backend.documents)
    await targets.load()
    plain_target = target_in(settings, name)
    target = targets.of(plain_target)
    if target is None or not target.delivers:
        raise BadInput(
            f"no live process serves sink {name}, and in these settings it is {plain_target.kind}, "
            "which delivers nothing; start pushlane dispatch with its sink first"
        )
    return target


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

    async def load(client: CommandLine) -> tuple[list[SinkView], LiveSinks]:
        found = await client.do(ListSinks())
        if client.remote is not None:
            processes = await client.do(ListProcesses())
            return found, LiveSinks(processes, {})
        return found, await load_live(client.backend, settings)

    known, live = on_client(settings, load)
    by_name = {one.sink: one for one in known}
    names = dict.fromkeys([*(() if settings.url else settings.served), *by_name])
    rows = [_row(settings, name, by_name.get(name), live) for name in names]
    if as_json:
        shown = [{name: one for name, one in row.items() if one is not None} for row in rows]
        print_json(plain(shown))
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

    A dispatcher that runs keeps the settings that it was started with: to test those, run this with
    the same --config and PUSHLANE_ variables. For one started with `--sink TARGET`, set the
    variable PUSHLANE_SINK to that TARGET.

    Exit code 0 when it was delivered (without --to: when it could be opened), 3 when the sink did
    not answer or was busy, 1 for all else, as when it refuses the credentials.
    """
    settings = flags.settings()
    with redirect_stdout(sys.stderr if as_json else sys.stdout):  # of a sink that prints
        outcome = asyncio.run(_tried(settings, name, to))
    target = target_in(settings, name)
    if as_json:
        print_json(_tried_json(name, target, outcome))
    _warn(settings, name)
    if (live := asyncio.run(live_if_any(settings))) is not None:
        _tell_whose_settings(live, name)
    if outcome is None:
        note(f"sink {name} ({target}) can be opened; --to ADDRESS sends one push")
    elif outcome.kind is Kind.DELIVERED and target.delivers:
        note(f"sink {name} ({target}) has delivered one push")
    elif outcome.kind is Kind.DELIVERED:
        note(f"sink {name} {instead(target.kind)}: nothing was delivered")
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


def _tell_difference(live: LiveSinks, name: str, more: str = "") -> None:
    if difference := live.difference(name):
        note(f"{difference}{more}")


def _tell_whose_settings(live: LiveSinks, name: str) -> None:
    """Say by which settings a test goes where a process runs that may have others."""
    if not live.targets(name):
        return
    flag = "; for a process started with `--sink TARGET` set PUSHLANE_SINK to that TARGET"
    note(
        f"{live.difference(name) or f'live processes serve sink {name}'}; this test goes by this "
        "shell's settings, not by those that they were started with: to test those, run it with "
        f"the same --config and PUSHLANE_ variables{flag if name == DEFAULT_SINK else ''}"
    )


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


def _row(settings: Settings, name: str, view: SinkView | None, live: LiveSinks) -> dict[str, Any]:
    is_known = name in settings.served and not settings.url
    kind_here = _kind(settings, name) if is_known else "not in these settings"
    state = view.state if view else UNSERVED
    if view is None or not view.served_by:
        state = _problem(settings, name) or state
    return {
        "sink": name,
        "kind": (view and view.kind) or kind_here,
        "slots": settings.of_sink(name).slots if is_known else "-",
        "served_by": view.served_by if view else 0,
        "state": state,
        "targets": view.targets if view else [],
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


def _kind(settings: Settings, name: str) -> str:
    if name == DEFAULT_SINK:
        return settings.sink.partition(":")[0]
    return settings.sinks[name].kind


def _described(settings: Settings, name: str) -> dict[str, Any]:
    if name == DEFAULT_SINK:
        require_sink(settings, name)
        return {"kind": _kind(settings, name), "slots": settings.slots} | _client(settings, name)
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
    return shown | own.shown_options() | _client(settings, name)


def _client(settings: Settings, name: str) -> dict[str, str]:
    """Return what posts the pushes of a sink that has a choice, as far as its options can be."""
    try:
        options: Any = options_in(settings, name)
        return {"posted_by": options.posted_by()} if hasattr(options, "posted_by") else {}
    except BadInput:
        return {}


sinks = Group("Look at the sinks of the settings, and try them.", (list_, show, test, accept))
