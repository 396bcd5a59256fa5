"""`sinks accept` believes the final answers of a target that has never delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, on_backend
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.dispatcher.sinks.named import target_in
from pushlane.lanes.target_history import accept as accept_target
from pushlane.lanes.target_history import target_history
from pushlane.model.presence import Process, SinkTarget
from pushlane.model.targets import SinkTargets
from pushlane.settings import Settings


def accept(
    flags: Flags,
    name: Annotated[str, typer.Argument(metavar="SINK")],
    undo: Annotated[bool, typer.Option("--undo", help="Believe them no longer.")] = False,
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

    for one in on_backend(settings, apply):
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
    if processes:
        return _announced(processes, name)
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


def _announced(processes: Sequence[Process], name: str) -> list[SinkTarget]:
    known = [one.at(name).target for one in processes]
    targets = {one.hash: one for one in known if one is not None and one.delivers}
    if not targets:
        raise BadInput(
            f"the processes that serve sink {name} deliver to nothing whose answers could be "
            "accepted, or are of an older version"
        )
    return list(targets.values())


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
