"""The errors that no push meets on its way; all of them are drawn in `core.errors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pushlane.core.errors import (
    BadInput,
    PushlaneError,
    TaskConflict,
    UnknownFormat,
    Unreachable,
    UserError,
)


class NotFound(UserError):
    """There is no such thing, or none that the caller may see."""


class UnknownTask(NotFound):
    """There is no such task, or there are `several` of that name."""

    def __init__(self, message: str, *, several: bool = False) -> None:
        super().__init__(message)
        self.several = several


class NotAllowed(UserError):
    """It is not the caller's to do."""


class Overtaken(UserError):
    """A value is not as the caller saw it: somebody has set another since.

    `present` is how it is now, and `tag` the tag of that.
    """

    def __init__(self, subject: str, present: Mapping[str, Any], tag: str) -> None:
        self.present = present
        self.tag = tag
        super().__init__(
            f"{subject} has changed since you read it; read it again, and if your change is "
            "still right, send it with the new ETag"
        )


class PreviewChanged(UserError):
    """A change would do other than was previewed; `present` is the preview of now."""

    def __init__(self, message: str, present: Mapping[str, Any] | None = None) -> None:
        self.present = present
        super().__init__(message)


class Unseen(UserError):
    """A value is to be set over another, and the caller has not said over which."""


class Unauthorized(NotAllowed):
    """Who asks has not shown a token that is valid now."""


class NotNow(UserError):
    """It cannot be done for the time being: changes are forbidden, or too much is under way."""


class NeedsBackend(UserError):
    """It needs the backend itself, and the settings name a server to work through."""

    exit_code = 2

    def __init__(self, url: str, instead: str = "") -> None:
        super().__init__(
            f"this cannot be done through the server {url}: it needs the broker or the store "
            f"itself; {instead}unset PUSHLANE_URL (setting url), and run it where it can reach "
            "them"
        )


class TooMany(UserError):
    """They ask too often; after `wait_s` they may ask again."""

    def __init__(self, message: str, wait_s: float = 1.0) -> None:
        self.wait_s = wait_s
        super().__init__(message)


class OversizedPush(BadInput):
    """A push is over the size limit."""


class RefusedUrl(BadInput):
    """A URL leads, or may lead, to where it must not.

    `reason` says why in one of a few fixed phrases; only the message may name the host.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        self.reason = reason
        super().__init__(message or reason)


class BufferFull(PushlaneError):
    """A producer cannot hold another push."""


class DamagedRecord(UnknownFormat):
    """A record cannot be read, though its format is one that this version reads.

    So no version reads it. `place` is the field that is wrong, as far as that is known.
    """

    def __init__(self, what: str, place: str, way_out: str, *, task_id: str = "") -> None:
        self.version = 0
        where = f" in its field {place}" if place else ""
        self._set(f"{what} is damaged{where}: no version of pushlane reads it", way_out, task_id)
        PushlaneError.__init__(self, f"{self.fault}; {way_out}")


class Unstorable(PushlaneError):
    """A record that no process could read back is refused before it is written."""

    def __init__(self, what: str, place: str = "") -> None:
        where = f" in its field {place}" if place else ""
        super().__init__(
            f"{what} was not written, as it could not be read back{where}: this is a defect in "
            "pushlane; what is stored is unchanged; please report it"
        )


class ReceiptsGone(PushlaneError):
    """The log of receipts does not keep these receipts any more."""


class MalformedReceipts(PushlaneError):
    """Bytes of the receipts log are no receipts."""


class LinesBusy(TaskConflict):
    """Somebody else sends lines of the task, or asks how far they are."""


class Superseded(PushlaneError):
    """Another process leads now: this one's change is refused."""


class NoLeader(PushlaneError):
    """No dispatcher leads now."""


class Denied(Unreachable):
    """A service does not accept our credentials: nothing was done."""


class MissingPermission(Denied):
    """A service knows us, but our role lacks a permission: nothing was done."""


class StorageFull(Unreachable):
    """The disk that holds the embedded database is full."""


class NoStore(Unreachable):
    """There is no embedded store in the folder that the settings name."""


class RefillRefused(Unreachable):
    """Redis is not filled from the journal: tasks that are not finished would be lost by that."""


class UnknownHost(Unreachable):
    """The name of a host has no address now. `reason` is a fixed phrase.

    `may_pass` when the resolver gave no answer: the name may well be good.
    """

    def __init__(self, reason: str, message: str, *, may_pass: bool = False) -> None:
        self.reason = reason
        self.may_pass = may_pass
        super().__init__(message)
