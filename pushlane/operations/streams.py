"""Operations on streams, which single pushes are sent as: one change holds for all their tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from pushlane.core.task import ACTIVE_STATES, MAX_ATTEMPTS, MAX_QUOTA, Level, State, now_ms
from pushlane.model.streams import (
    Stream,
    change_stream,
    check_name,
    existing,
    find_stream,
    list_streams,
    only_stream,
    remove_stream,
)
from pushlane.operations.operation import LONGEST_S, ETag, Of, Operation, Role, read_by
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Caller, Session
from pushlane.util.conversion import seconds, texts
from pushlane.util.errors import NotAllowed

_DEFAULT_APP = "default"


def _after_s(what: str, given: object) -> float:
    return seconds(what, given, 1, LONGEST_S)


def _sinks(what: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    return texts(what, given)


StreamWord = Annotated[str, Meta(description="Its name.")]
StreamApp = Annotated[
    str, Meta(description="The stream's app; needed if several apps have a stream of that name.")
]


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A stream, as it was asked for. Times are Unix milliseconds.

    A push of it expires `expires_after_s` after it came, unless it says when. Its tasks together
    are held to `rate_per_s` and `in_flight`, each of them to an equal part.
    """

    name: str
    app: str
    level: Level
    quota: int
    sinks: tuple[str, ...]
    max_attempts: int | None
    expires_after_s: float | None
    rate_per_s: float | None
    in_flight: int | None
    paused: bool
    reason: str
    created_at_ms: int


class StreamNow(StreamView, frozen=True, kw_only=True):
    """A stream with its tasks that have not ended, and what has become of its pushes.

    The counts are those of all of its tasks that are not forgotten.
    """

    tasks: tuple[str, ...]
    delivered: int
    dead: int
    expired: int
    dropped: int


class PutStream(Operation[StreamView], frozen=True, kw_only=True):
    """Make a stream for single pushes, or change its options: `PUT .../pushes/KEY` then sends one.

    What is not given is as if it were new, but a pause stays. Level, quota and limits of one that
    is there are an operator's to change, and hold for what waits, too; another sink or number of
    attempts is for pushes from then on.
    """

    method, path, role, of = "PUT", "/streams/{name}", Role.SUBMITTER, Of.APP
    commands = ("streams put",)
    changes = True
    etag = ETag.TAKEN

    name: Annotated[str, Meta(max_length=64, description="Its name, in the app.")]
    level: Annotated[Level, Meta(description="Its priority.")]
    app: Annotated[
        str, Meta(description="The app that sends; the token's only app, else `default`.")
    ] = ""
    quota: Annotated[
        int, Meta(ge=1, le=MAX_QUOTA, description="Pushes in the turn of each of its tasks.")
    ] = 1
    sinks: Annotated[
        tuple[str, ...],
        read_by(_sinks),
        Meta(description="Where it goes: to the first; else to the next."),
    ] = ()
    max_attempts: (
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS, description="Deliveries tried a push.")] | None
    ) = None
    expires_after_s: (
        Annotated[
            float,
            read_by(_after_s),
            Meta(ge=1, le=LONGEST_S, description="A push expires so long after it came."),
        ]
        | None
    ) = None
    rate_per_s: Annotated[float, Meta(gt=0, description="Pushes a second, in all.")] | None = None
    in_flight: Annotated[int, Meta(ge=1, description="Deliveries at once, in all.")] | None = None

    async def run(self, at: Session) -> StreamView:
        from pushlane.producers.feed import check_stream  # which loads how tasks are made
        from pushlane.producers.stream_tasks import apply

        check_name(self.name)
        most_per_s = at.caller.access.most_per_s
        rate_per_s = self.rate_per_s if self.rate_per_s is not None else most_per_s
        at.caller.access.refuse_beyond(
            at.caller.name,
            level=self.level,
            sinks=self.sinks,
            quota=self.quota,
            rate_per_s=rate_per_s,
        )
        app = self.app or _own_app(at)
        given = {n: getattr(self, n) for n in self.__struct_fields__}
        wanted = Stream(
            **{**given, "app": app, "rate_per_s": rate_per_s, "created_at_ms": now_ms()}
        )
        await check_stream(at.backend, at.settings, wanted)

        def edit(was: Stream | None) -> Stream:
            at.require_seen(f"stream/{wanted.place}", _set_of(was) if was else {})
            return wanted if was is None else _changed(at.caller, was, wanted)

        before, after = await change_stream(at.backend.documents, app, self.name, edit)
        if before is not None and before != after:
            await apply(at.backend, after)
        _note(at, before, after)
        at.show(f"stream/{after.place}", _set_of(after))
        return _view(after)


class ListStreams(Operation[list[StreamView]], frozen=True, kw_only=True):
    """List the streams that there are, by app and name."""

    method, path, role, of = "GET", "/streams", Role.VIEWER, Of.APPS
    commands = ("streams list",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[StreamView]:
        there = await list_streams(at.backend.documents)
        found = sorted((one for one in there if at.sees(one.app)), key=lambda one: one.place)
        return [_view(one) for one in page(at, self, found, lambda one: one.place)]


class GetStream(Operation[StreamNow], frozen=True, kw_only=True):
    """Show a stream, its tasks that have not ended, and what has become of its pushes."""

    method, path, role, of = "GET", "/streams/{name}", Role.VIEWER, Of.APP
    commands = ("streams show",)
    etag = ETag.SHOWN

    name: StreamWord
    app: StreamApp = ""

    async def run(self, at: Session) -> StreamNow:
        from pushlane.producers.stream_tasks import tasks_of

        stream = await find(at, self.name, self.app)
        at.show(f"stream/{stream.place}", _set_of(stream))
        tasks = await tasks_of(at.backend, stream, tuple(State))
        counts = await at.backend.registry.progress([task.id for task in tasks])
        names = ("delivered", "dead", "expired", "dropped")
        return StreamNow(
            **msgspec.structs.asdict(_view(stream)),
            tasks=tuple(task.id for task in tasks if task.state in ACTIVE_STATES),
            **{name: sum(getattr(one, name) for one in counts) for name in names},
        )


class PauseStream(Operation[StreamView], frozen=True, kw_only=True):
    """Hold all of a stream: what it takes meanwhile waits, too."""

    method, path, role, of = "POST", "/streams/{name}/pause", Role.SUBMITTER, Of.APP
    commands = ("streams pause",)
    changes = True
    etag = ETag.TAKEN

    name: StreamWord
    app: StreamApp = ""
    reason: Annotated[str, Meta(max_length=200, description="Kept with the stream.")] = ""

    async def run(self, at: Session) -> StreamView:
        def edit(was: Stream) -> Stream:
            return was if was.paused else replace(was, paused=True, reason=self.reason)

        return await _change(at, self.name, self.app, edit)


class ResumeStream(Operation[StreamView], frozen=True, kw_only=True):
    """Let a stream go on, with all of its tasks, whichever way they were paused."""

    method, path, role, of = "POST", "/streams/{name}/resume", Role.SUBMITTER, Of.APP
    commands = ("streams resume",)
    changes = True
    etag = ETag.TAKEN

    name: StreamWord
    app: StreamApp = ""

    async def run(self, at: Session) -> StreamView:
        def edit(was: Stream) -> Stream:
            return replace(was, paused=False, reason="")

        return await _change(at, self.name, self.app, edit, resumes=True)


class SetStreamQuota(Operation[StreamView], frozen=True, kw_only=True):
    """Set how many pushes each task of a stream sends in its turn, from now on."""

    method, path, role, of = "PUT", "/streams/{name}/quota", Role.OPERATOR, Of.APP
    commands = ("streams quota",)
    changes = True
    etag = ETag.NEEDED

    name: StreamWord
    quota: Annotated[int, Meta(ge=1, le=MAX_QUOTA, description="Pushes a turn.")]
    app: StreamApp = ""

    async def run(self, at: Session) -> StreamView:
        def edit(was: Stream) -> Stream:
            return replace(was, quota=self.quota)

        return await _change(at, self.name, self.app, edit)


class EndStream(Operation[StreamView], frozen=True, kw_only=True):
    """End a stream: it takes no more from now on, to a second, and what it has is sent."""

    method, path, role, of = "DELETE", "/streams/{name}", Role.SUBMITTER, Of.APP
    commands = ("streams end",)
    changes = True

    name: StreamWord
    app: StreamApp = ""

    async def run(self, at: Session) -> StreamView:
        stream = await find(at, self.name, self.app)
        if await remove_stream(at.backend.documents, stream.app, stream.name):
            at.changed(f"stream/{stream.place}", _noted(stream), {}, stream.app)
        return _view(stream)


async def find(at: Session, name: str, app: str) -> Stream:
    """Return the caller's stream of this name. Raises NotFound, and BadInput for several."""
    documents = at.backend.documents
    apps = [app] if app else at.apps
    if apps is None:
        found = [one for one in await list_streams(documents) if one.name == name]
    else:
        asked = [await find_stream(documents, one, name) for one in sorted(apps)]
        found = [one for one in asked if one is not None]
    return only_stream(found, name)


async def _change(
    at: Session, name: str, app: str, edit: Callable[[Stream], Stream], *, resumes: bool = False
) -> StreamView:
    """Change a stream, and with it its tasks, whatever they were: a repeat mends what was cut."""
    from pushlane.producers.stream_tasks import apply

    stream = await find(at, name, app)

    def checked(there: Stream | None) -> Stream:
        was = existing(there)
        at.require_seen(f"stream/{was.place}", _set_of(was))
        return edit(was)

    before, after = await change_stream(at.backend.documents, stream.app, stream.name, checked)
    at.show(f"stream/{after.place}", _set_of(after))
    await apply(at.backend, after, resumes=resumes)
    _note(at, before, after)
    return _view(after)


def _set_of(stream: Stream) -> dict[str, Any]:
    """Return what is set of a stream: all but when it was made."""
    found = {name: one for name, one in _noted(stream).items() if one is not None}
    del found["created_at_ms"]
    return found


def _changed(caller: Caller, was: Stream, wanted: Stream) -> Stream:
    """Return a stream with other options. Raises NotAllowed for those that are an operator's."""
    others = [n for n in ("level", "quota", "rate_per_s", "in_flight") if _differs(was, wanted, n)]
    if others and not caller.access.role.may(Role.OPERATOR):
        raise NotAllowed(
            f"stream {was.name} exists, and {', '.join(others)} would change, which needs the "
            f"role operator; {caller.name} has the role {caller.access.role}"
        )
    return replace(wanted, paused=was.paused, reason=was.reason, created_at_ms=was.created_at_ms)


def _differs(one: Stream, other: Stream, name: str) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


def _own_app(at: Session) -> str:
    if at.apps is None or len(at.apps) != 1:
        at.require_app(_DEFAULT_APP)
        return _DEFAULT_APP
    [app] = at.apps
    return app


def _view(stream: Stream) -> StreamView:
    return StreamView(**msgspec.structs.asdict(stream))


def _note(at: Session, before: Stream | None, after: Stream) -> None:
    was = {} if before is None else _noted(before)
    at.changed(f"stream/{after.place}", was, _noted(after), after.app)


def _noted(stream: Stream) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(_view(stream))
    return shown
