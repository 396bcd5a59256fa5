"""Operations on streams, which single pushes over HTTP are sent as."""

from __future__ import annotations

from datetime import timedelta

from pushlane.client.connection import Connection
from pushlane.core.task import Level
from pushlane.operations.streams import (
    EndStream,
    GetStream,
    ListStreams,
    PauseStream,
    PutStream,
    ResumeStream,
    SetStreamQuota,
    StreamNow,
    StreamView,
)


class StreamOperations(Connection):
    """Operations on streams. Give `app` where several apps have a stream of that name."""

    async def put_stream(
        self,
        name: str,
        level: Level | str,
        *,
        app: str = "",
        quota: int | str = 1,
        sinks: str | tuple[str, ...] = (),
        max_attempts: int | str | None = None,
        expires_after_s: float | timedelta | str | None = None,
        rate_per_s: float | str | None = None,
        in_flight: int | str | None = None,
    ) -> StreamView:
        """Make a stream of an app, `default` unless given, or change its options.

        A push of it expires so long after it came, unless it says when. The rate and the deliveries
        at once are those of all of its tasks together. Raises BadInput for what cannot be.
        """
        wanted = PutStream.made(
            name=name,
            level=level,
            app=app,
            quota=quota,
            sinks=sinks,
            max_attempts=max_attempts,
            expires_after_s=expires_after_s,
            rate_per_s=rate_per_s,
            in_flight=in_flight,
        )
        return await self.do(wanted)

    async def streams(self) -> list[StreamView]:
        """Return the streams that there are, by app and name."""
        return await self.do(ListStreams())

    async def stream(self, name: str, app: str = "") -> StreamNow:
        """Return a stream, its tasks that have not ended, and what has become of its pushes."""
        return await self.do(GetStream.made(name=name, app=app))

    async def pause_stream(self, name: str, reason: str = "", *, app: str = "") -> StreamView:
        """Hold all of a stream: what it takes meanwhile waits, too."""
        return await self.do(PauseStream.made(name=name, app=app, reason=reason))

    async def resume_stream(self, name: str, *, app: str = "") -> StreamView:
        """Let a stream go on, with all of its tasks, whichever way they were paused."""
        return await self.do(ResumeStream.made(name=name, app=app))

    async def set_stream_quota(self, name: str, quota: int | str, *, app: str = "") -> StreamView:
        """Set how many pushes each task of a stream sends in its turn, from now on."""
        return await self.do(SetStreamQuota.made(name=name, quota=quota, app=app))

    async def end_stream(self, name: str, *, app: str = "") -> StreamView:
        """End a stream: it takes no more, and what it has is sent."""
        return await self.do(EndStream.made(name=name, app=app))
