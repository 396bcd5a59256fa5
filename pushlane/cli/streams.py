"""`streams` makes streams for single pushes, and steers each as one."""

from __future__ import annotations

from typing import Annotated, Any

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, option
from pushlane.cli.parsing import parse_level, parse_names
from pushlane.cli.render import Column, print_fields, print_json, print_rows, time_text
from pushlane.operations.streams import (
    EndStream,
    GetStream,
    ListStreams,
    PauseStream,
    PutStream,
    ResumeStream,
    SetStreamQuota,
    StreamView,
)
from pushlane.operations.views import plain

Name = Annotated[str, argument("NAME", "Its name.")]
App = Annotated[
    str, option("NAME", "The stream's app, if several apps have a stream of that name.")
]

_COLUMNS: tuple[Column[StreamView], ...] = (
    Column("NAME", lambda one: one.name, elastic=True),
    Column("APP", lambda one: one.app, elastic=True),
    Column("LEVEL", lambda one: one.level),
    Column("QUOTA", lambda one: str(one.quota), number=True),
    Column("SINKS", lambda one: ", ".join(one.sinks) or "default", elastic=True),
    Column("STATE", lambda one: _state(one), elastic=True),
)


def put(
    flags: Flags,
    name: Name,
    level: Annotated[str, option("high|medium|low", "Its priority.")],
    app: Annotated[
        str, option("NAME", "The app (tenant) that sends; `default` unless given.")
    ] = "",
    quota: Annotated[int, option("N", "Pushes in the turn of each of its tasks.", min=1)] = 1,
    sink: Annotated[str, option("A,B", "To the first; what fails there to the next.")] = "",
    max_attempts: Annotated[int | None, option("N", "Deliveries tried a push.", min=1)] = None,
    expires_after: Annotated[str, option("2h", "A push expires so long after it came.")] = "",
    rate: Annotated[float | None, option("N", "So many pushes a second, in all.")] = None,
    in_flight: Annotated[int | None, option("N", "So many deliveries at once.", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a stream for single pushes (`pushlane serve` takes them), or change its options."""
    wanted = PutStream.made(
        name=name,
        level=parse_level(level),
        app=app,
        quota=quota,
        sinks=parse_names(sink),
        max_attempts=max_attempts,
        expires_after_s=expires_after or None,
        rate_per_s=rate,
        in_flight=in_flight,
    )
    _told(done(flags.settings(), wanted, create=True), as_json)


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """List the streams that there are."""
    settings = flags.settings()
    nothing = f"no streams {settings.place}; make one: pushlane streams put NAME --level LEVEL"
    found = done(settings, ListStreams())
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


def show(flags: Flags, name: Name, app: App = "", as_json: JsonFlag = False) -> None:
    """Show a stream, its tasks that have not ended, and what has become of its pushes."""
    found = done(flags.settings(), GetStream(name=name, app=app))
    if as_json:
        print_json(plain(found))
    else:
        print_fields((name, _text(name, value)) for name, value in plain(found).items())


def pause(
    flags: Flags,
    name: Name,
    reason: Annotated[str, option("TEXT", "Kept with the stream.")] = "",
    app: App = "",
    as_json: JsonFlag = False,
) -> None:
    """Hold all of a stream: what it takes meanwhile waits, too."""
    _told(done(flags.settings(), PauseStream(name=name, app=app, reason=reason)), as_json)


def resume(flags: Flags, name: Name, app: App = "", as_json: JsonFlag = False) -> None:
    """Let a stream go on, with all of its tasks."""
    _told(done(flags.settings(), ResumeStream(name=name, app=app)), as_json)


def quota(
    flags: Flags,
    name: Name,
    pushes: Annotated[int, argument("N", "Pushes a turn, from 1.")],
    app: App = "",
    as_json: JsonFlag = False,
) -> None:
    """Set how many pushes each task of a stream sends in its turn, from now on."""
    _told(done(flags.settings(), SetStreamQuota.made(name=name, quota=pushes, app=app)), as_json)


def end(flags: Flags, name: Name, app: App = "", as_json: JsonFlag = False) -> None:
    """End a stream: it takes no more, and what it has is sent."""
    ended = done(flags.settings(), EndStream(name=name, app=app))
    if as_json:
        print_json(plain(ended))
    note(f"stream {ended.name} of app {ended.app} takes no more; what it has is sent")


def _told(stream: StreamView, as_json: bool) -> None:
    if as_json:
        print_json(plain(stream))
    turn = f"{stream.level}, {stream.quota} in its turn"
    note(f"stream {stream.name} of app {stream.app}: {turn}, {_state(stream)}")


def _text(name: str, value: Any) -> str:
    if name.endswith("_at_ms"):
        return time_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) if isinstance(value, tuple | list) else str(value)) or "-"


def _state(stream: StreamView) -> str:
    if not stream.paused:
        return "open"
    return f"paused: {stream.reason}" if stream.reason else "paused"


streams = Group(
    "Make streams for single pushes, and steer each as one.",
    (put, list_, show, pause, resume, quota, end),
)
