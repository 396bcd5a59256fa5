"""Commands on the registry as a whole: copy it, restore it, and fill Redis from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pushlane.backends.operations import Beside, RegistryGap, TaskCount, copies_of, refusal
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import Flags, Group, JsonFlag, YesFlag, argument, switch
from pushlane.cli.render import print_fields, print_json
from pushlane.core.errors import BadInput, UserError
from pushlane.settings import Settings

FileArgument = Annotated[Path, argument("FILE", "The copy.")]


def backup(flags: Flags, file: FileArgument, as_json: JsonFlag = False) -> None:
    """Copy the registry into a new file, while others use it.

    Of the embedded store all is copied, lanes too; on Pulsar the tasks, weights and documents.
    """
    settings = flags.settings()
    tasks = asyncio.run(copies_of(settings).back_up(settings, file))
    if as_json:
        print_json({"file": file, "tasks": tasks})
    note(f"tasks in {file}: {tasks:,}, with {_besides(settings)}")


def restore(flags: Flags, file: FileArgument, as_json: JsonFlag = False) -> None:
    """Make the registry of a copy, where there is none. Dispatchers are started afterwards."""
    settings = flags.settings()
    tasks = asyncio.run(copies_of(settings).restore(settings, file))
    if as_json:
        print_json({"file": file, "tasks": tasks})
    note(f"tasks in {settings.location} again: {tasks:,}, with {_besides(settings)}")


def _besides(settings: Settings) -> str:
    if settings.capabilities.is_local:
        return "all else of the store"
    return "weights, rules and other documents; no pushes, no counts, no suppressions"


def rebuild(
    flags: Flags,
    accept_loss: Annotated[
        bool, switch("--accept-loss", "Remove tasks that the task topic lacks.")
    ] = False,
    keep: Annotated[
        bool, switch("--keep", "Write tasks that only Redis has to the topic again.")
    ] = False,
    dry_run: Annotated[bool, switch("--dry-run", "Only compare the two.")] = False,
    json: JsonFlag = False,
    yes: YesFlag = False,
) -> None:
    """Rebuild the registry in Redis from the task topic, Pulsar's durable record of all tasks.

    It is refused without --accept-loss or --keep if unfinished tasks would be lost.
    """
    if accept_loss and keep:
        raise BadInput("--accept-loss removes what --keep keeps; give one of them")
    settings = flags.settings()
    copies = copies_of(settings)
    found = asyncio.run(copies.compare_registry(settings))
    if dry_run:
        if json:
            print_json(_document(found, rebuilt=False))
        else:
            print_fields(_fields(found))
        return
    if found.is_loss and not (accept_loss or keep):
        lost, unfinished = found.registry_alone.unfinished, found.registry.unfinished
        raise UserError(refusal(found.where, lost, unfinished))
    if accept_loss and found.registry_alone.tasks and not yes:
        what = f"{_text(found.registry_alone)} that the task topic lacks"
        confirm(f"removing {what}", f"Remove {what}, with their counts?", "nothing is rebuilt")
    beside = Beside.REMOVED if accept_loss else Beside.KEPT if keep else Beside.REFUSED
    asyncio.run(copies.rebuild_registry(settings, beside))
    alone = _text(found.registry_alone)
    if json:
        print_json(_document(found, rebuilt=True))
    what = f"written to the topic again: {alone}" if keep else f"removed: {alone}"
    note(f"the registry in Redis at {found.where} is rebuilt from the task topic; {what}")


def _document(found: RegistryGap, *, rebuilt: bool) -> dict[str, Any]:
    refused = found.is_loss and not rebuilt
    return {**msgspec.to_builtins(found), "refused": refused, "rebuilt": rebuilt}


def _fields(found: RegistryGap) -> Iterator[tuple[str, str]]:
    alone = found.registry_alone
    yield "task topic", _text(found.journal)
    yield f"Redis at {found.where}", _text(found.registry)
    yield "only in the topic", _text(found.journal_alone)
    yield "only in Redis", _text(alone)
    if found.some:
        more = ", …" if alone.tasks > len(found.some) else ""
        yield "such as", ", ".join(found.some) + more
    if found.is_loss:
        yield (
            "a rebuild",
            "is refused; --keep writes these to the topic again, --accept-loss removes them",
        )
    elif alone.tasks:
        yield "a rebuild", "removes what is only in Redis; --keep writes it to the topic again"
    else:
        yield "a rebuild", "removes nothing"


def _text(extent: TaskCount) -> str:
    unit = "task" if extent.tasks == 1 else "tasks"
    return f"{extent.tasks:,} {unit}, {extent.unfinished:,} unfinished"


registry = Group("Rebuild the registry in Redis from the task topic on Pulsar.", (rebuild,))
