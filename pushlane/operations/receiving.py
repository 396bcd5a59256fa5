"""Operations on a task whose pushes come as lines: make it, ask what is safe, seal it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from pushlane.core.errors import TaskConflict
from pushlane.core.names import own_lane
from pushlane.core.task import MAX_ATTEMPTS, MAX_QUOTA, DeliveryMode, Level, OnUnknown, Task
from pushlane.model import task_changes
from pushlane.model.access import Access
from pushlane.model.limits import Limit
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.session import Session
from pushlane.operations.task_views import ChangedTask, TaskView, changed_view, view_of
from pushlane.settings.payload_limits import payload_limits
from pushlane.util.errors import UnknownTask

TaskWord = Annotated[str, Meta(description="Its id, key or name.")]


class Received(msgspec.Struct, frozen=True):
    """How far the lines of a task are safe: on its lane, whatever is cut from now on."""

    task: str
    safe_line: int


class SinkTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider of a sink takes: pushes of so many bytes, as it counts them.

    A `silent` sink sends neither title nor body.
    """

    sink: str
    kind: str
    most_bytes: int
    silent: bool


class Terms(msgspec.Struct, frozen=True):
    """What the pushes of a task are held to. Sinks whose limits nobody knows are left out."""

    sinks: Sequence[SinkTerms]


class GetTerms(Operation[Terms], frozen=True, kw_only=True):
    """Say what the pushes of a task would be held to, before it is made and a row is read.

    A task that would not be made is refused as it is then: for a sink that nobody knows, a
    retention that cannot be, or what is over the bounds of the token.
    """

    method, path, role, of = "GET", "/terms", Role.SUBMITTER, Of.APP

    level: Annotated[Level, Meta(description="Its priority.")]
    app: Annotated[str, Meta(description="The app that sends.")] = "default"
    key: Annotated[
        str, Meta(max_length=150, description="Idempotency key: repeats with it are one push.")
    ] = ""
    quota: Annotated[int, Meta(ge=1, le=MAX_QUOTA, description="Pushes in its turn.")] = 1
    sinks: Annotated[
        tuple[str, ...], Meta(description="Where it goes: to the first; else to the next.")
    ] = ()
    retention_s: (
        Annotated[float, Meta(ge=0, description="How long its lane is kept after its end.")] | None
    ) = None
    rate_per_s: (
        Annotated[float, Meta(gt=0, description="Pushes a second, from the first on.")] | None
    ) = None

    async def run(self, at: Session) -> Terms:
        wanted = CreateTask(**{name: getattr(self, name) for name in self.__struct_fields__})
        limits = payload_limits(at.settings, (await wanted.accepted(at)).chain)
        return Terms(
            [
                SinkTerms(sink=name, kind=kind, most_bytes=most, silent=name in limits.silent)
                for name, (kind, most) in limits.sinks.items()
            ]
        )


class CreateTask(Operation[TaskView], frozen=True, kw_only=True):
    """Make a task whose pushes come as lines: `POST .../pushes`, then seal it.

    Nothing of it goes before its seal, unless `deliver` says so. The same key of an app is the same
    task: asking again returns it as it is, with the start, expiry and limits that it has, and with
    other options it is refused. What lines were sent under a key cannot be known: the total at the
    seal is the check, and a `digest` of them if you give one.
    """

    method, path, role, of = "POST", "/tasks", Role.SUBMITTER, Of.APP
    changes = True

    level: Annotated[Level, Meta(description="Its priority.")]
    id: Annotated[
        str,
        Meta(pattern=r"^([0-9a-z]{14})?$", description="Its id, as a `Producer` has made one."),
    ] = ""
    app: Annotated[str, Meta(description="The app that sends.")] = "default"
    name: Annotated[str, Meta(max_length=200, description="For people.")] = ""
    key: Annotated[
        str, Meta(max_length=150, description="One of yours, in this app: repeats make no other.")
    ] = ""
    quota: Annotated[int, Meta(ge=1, le=MAX_QUOTA, description="Pushes in its turn.")] = 1
    sinks: Annotated[
        tuple[str, ...], Meta(description="Where it goes: to the first; else to the next.")
    ] = ()
    max_attempts: (
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS, description="Deliveries tried a push.")] | None
    ) = None
    delivery: Annotated[DeliveryMode, Meta(description="The guarantee for each push.")] = (
        DeliveryMode.AT_LEAST_ONCE
    )
    on_unknown: Annotated[
        OnUnknown | None, Meta(description="Of `once`: what becomes of a push in doubt.")
    ] = None
    not_before_ms: Annotated[int, Meta(ge=0, description="Start then; 0 is at once.")] = 0
    expires_at_ms: Annotated[
        int, Meta(ge=0, description="Send nothing from then on; 0: never.")
    ] = 0
    quiet: Annotated[str, Meta(description="Hours like 22:00-08:00, by the recipient.")] = ""
    zone: Annotated[str, Meta(description="Of recipients without one: Europe/Berlin.")] = ""
    dedupe: Annotated[bool, Meta(description="Send a recipient one push of it.")] = False
    retention_s: (
        Annotated[float, Meta(ge=0, description="How long its lane is kept after its end.")] | None
    ) = None
    stop_if_dead: Annotated[str, Meta(description="Pause it when more die, like 5%, or off.")] = ""
    rate_per_s: (
        Annotated[float, Meta(gt=0, description="Pushes a second, from the first on.")] | None
    ) = None
    in_flight: (
        Annotated[int, Meta(ge=1, description="Deliveries at once, from the first on.")] | None
    ) = None
    deliver: Annotated[
        Literal["when_sealed", "at_once"], Meta(description="When its pushes may go.")
    ] = "when_sealed"
    paused: Annotated[bool, Meta(description="Send nothing until it is resumed.")] = False
    ordered: Annotated[bool, Meta(description="Lines may name the one they follow.")] = False
    expects: Annotated[int, Meta(ge=0, description="About how many lines will come.")] = 0
    digest: Annotated[
        str, Meta(max_length=128, description="Of the lines: another under the key is refused.")
    ] = ""

    async def run(self, at: Session) -> TaskView:
        # which load how tasks are made
        from pushlane.producers.limit_changes import limit_at_start
        from pushlane.producers.received import Receiving

        made = await self.accepted(at)
        if self.id:
            made = await _named(at, made, self.id)
        kept = await at.backend.add(made, at.settings, self.expects)
        if kept.id != made.id:
            await self._refuse_other(at, made, kept)
        limit = Limit(rate_per_s=self._rate(at.caller.access), in_flight=self.in_flight)
        if not limit.is_none:
            await limit_at_start(at.backend, kept, limit)
        if kept.total is None:
            hidden = self.deliver == "when_sealed"
            paused = task_changes.PAUSED_AT_SUBMIT if self.paused else ""
            await Receiving(at.backend, at.settings, kept).begin(hidden=hidden, paused=paused)
        if kept.id == made.id:
            at.changed(f"task/{kept.id}", {}, {"level": kept.level, "key": kept.key}, kept.app)
        return view_of(await at.backend.known(kept.id))

    async def accepted(self, at: Session) -> Task:
        """Return the task that it asks for. Raises what refuses that, whatever its key is of."""
        from pushlane.producers.task_builder import refuse_unknown_sinks

        at.caller.access.refuse_beyond(
            at.caller.name,
            level=self.level,
            sinks=self.sinks,
            quota=self.quota,
            rate_per_s=self.rate_per_s,
        )
        made = self._made(at)
        await refuse_unknown_sinks(at.backend, at.settings, made)
        return made

    async def _refuse_other(self, at: Session, made: Task, kept: Task) -> None:
        """Raise TaskConflict where the key is that of another task, or of one that was stopped."""
        from pushlane.producers.task_builder import other_content, refuse_stopped

        if not at.sees(kept.app) or kept.app != made.app:
            raise TaskConflict(f"key {self.key!r} is used by a task of another app; choose another")
        kept = replace(kept, key=self.key)
        await refuse_stopped(at.backend, kept)
        if kept.fingerprint != made.fingerprint:
            raise other_content(replace(made, key=self.key), kept, _PARTS, "options or lines")

    def _made(self, at: Session) -> Task:
        """Return the task as it is asked for. Raises BadInput where it cannot be."""
        from pushlane.producers.task_builder import new_task, short_hashes
        from pushlane.producers.task_options import TaskOptions

        options = TaskOptions(
            level=self.level,
            app=self.app,
            name=self.name,
            key=self._stored_key(),
            quota=self.quota,
            sink=self.sinks,
            max_attempts=self.max_attempts,
            delivery=self.delivery,
            on_unknown=self.on_unknown,
            not_before_ms=self.not_before_ms,
            expires_at_ms=self.expires_at_ms,
            quiet=self.quiet,
            zone=self.zone,
            dedupe="recipient" if self.dedupe else "",
            retention_s=self.retention_s,
            stop_if_dead=self.stop_if_dead,
        )
        asked = msgspec.to_builtins(self)
        parts = {name: one for name, one in asked.items() if name not in _NOT_OF_KEY}
        form = msgspec.json.encode(parts, order="sorted")
        made = new_task(options, at.settings, on_own_lane=True)
        made = replace(made, fingerprint=_FORM + form.hex(), made_of=short_hashes(parts.values()))
        return replace(made, ordered=self.ordered, traceparent=at.beside.traceparent)

    def _stored_key(self) -> str:
        """Return the key as no other app has it; that of `default` is what commands give."""
        is_plain = self.app == _DEFAULT_APP and "/" not in self.key
        return self.key if is_plain or not self.key else f"{self.app}/{self.key}"

    def _rate(self, access: Access) -> float | None:
        return self.rate_per_s if self.rate_per_s is not None else access.most_per_s


async def _named(at: Session, made: Task, task_id: str) -> Task:
    """Return a task with this id. Raises TaskConflict where another one has it."""
    with suppress(UnknownTask):
        known = await at.backend.registry.get(task_id)
        if known.key != made.key or not made.key:
            raise TaskConflict(f"there is a task {task_id} already; leave the id out")
    lane = own_lane(task_id)
    return replace(made, id=task_id, lane=lane, first_lane=lane)


_DEFAULT_APP = "default"
_FORM = "lines:"
_NOT_OF_KEY = (
    *("id", "expects"),
    # `in 2 hours` is another time at each call
    *("not_before_ms", "expires_at_ms"),
    *("rate_per_s", "in_flight", "paused"),  # they may have been changed since
)
_PARTS = tuple(
    "lines" if name == "digest" else name
    for name in CreateTask.__struct_fields__
    if name not in _NOT_OF_KEY
)
"""The names of what a key stands for, in the order of their hashes."""


class GetSafeLine(Operation[Received], frozen=True, kw_only=True):
    """Say up to which line the pushes of a task are safe. Send the rest from the next one on."""

    method, path, role, of = "GET", "/tasks/{task}/pushes", Role.SUBMITTER, Of.TASK

    task: TaskWord

    async def run(self, at: Session) -> Received:
        from pushlane.producers.received import Receiving

        task = await at.task(self.task)
        return Received(task.id, await Receiving(at.backend, at.settings, task).safe())


class SealTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """End a task at so many lines: from now on all of it is sent, and it takes no more.

    Refused when another number of lines is safe. Sealed again with the same total it stays so.
    """

    method, path, role, of = "POST", "/tasks/{task}/seal", Role.SUBMITTER, Of.TASK
    changes = True

    task: TaskWord
    total: Annotated[int, Meta(ge=0, description="How many lines it has.")]

    async def run(self, at: Session) -> ChangedTask:
        from pushlane.producers.received import Receiving

        task = await at.task(self.task)
        sealed = await Receiving(at.backend, at.settings, task).seal(self.total)
        return changed_view(at, task, sealed)
