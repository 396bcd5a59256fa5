"""The errors that no push meets on its way; all of them are drawn in `core.errors`."""

from __future__ import annotations

from pushlane.core.errors import BadInput, PushlaneError, UnknownFormat, Unreachable, UserError


class UnknownTask(UserError):
    """There is no such task."""


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
            f"{what} is not written, as it could not be read back{where}: this is a fault of this "
            "process, not of what is stored, which is as it was; please report it"
        )


class ReceiptsGone(PushlaneError):
    """The log of receipts does not keep these receipts any more."""


class MalformedReceipts(PushlaneError):
    """Bytes of the receipts log are no receipts."""


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
