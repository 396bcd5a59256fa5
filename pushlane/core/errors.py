"""The tree of all errors that a user can meet, and those of them that a push's way has itself.

The others are in `util/errors.py`, or beside what raises them.

    PushlaneError
    ├── UserError              exit 1: something in the request; the message says what to change
    │   ├── NotFound           no such thing that the caller may see
    │   │   └── UnknownTask    no such task (names the nearest)
    │   ├── TaskConflict       the same key with other content, or a submit already under way
    │   ├── InvalidChange      the task cannot make this change now (finished, or it shares a lane)
    │   ├── NotAllowed         not this caller's to do (names the role that is needed)
    │   │   └── Unauthorized   a token that is not valid, or none
    │   ├── NotNow             nothing may be changed for the time being (says who said so)
    │   ├── BadInput           a file, row, column, template or option that cannot be used
    │   ├── OversizedPush      a push over the size limit
    │   └── RefusedUrl         a URL that leads, or may lead, to where it must not
    ├── BufferFull             a producer takes no more for now: its buffer, and its spool, are full
    ├── MalformedPush          bytes on a lane that are no push (buried, never raised to a user)
    ├── UnknownFormat          something stored in a newer format (left to who can read it)
    │   ├── DamagedRecord      a record of a format we know that cannot be read (names the way out)
    │   └── OutdatedFormat     what only versions before 0.2.0 wrote (0.2.0 works it off)
    ├── Unstorable             a record that could not be read back (refused before it is written)
    ├── ReceiptsGone           receipts that the log keeps no more (names what is left)
    ├── MalformedReceipts      bytes of the receipts log that are no receipts (set aside, counted)
    ├── Superseded             a leader's change that came after another had taken over
    ├── NoLeader               no dispatcher leads now, so nobody knows the figures of all
    ├── UnknownLane            a lane that was never opened, or is dropped (its task has ended)
    └── Unreachable            exit 3: a service did not answer (names the URL and what to do)
        ├── Denied             a service does not accept our credentials (names their setting)
        │   └── MissingPermission  it knows us, but they lack a permission (names the command)
        ├── StorageFull        the embedded database cannot grow
        ├── NoStore            no embedded store in the folder (names it, and what to set)
        ├── TaskInDoubt        the registry lacks a task that may be under way (asked again)
        ├── RefillRefused      the journal lacks tasks that Redis has (names the commands)
        └── UnknownHost        the name of a host has no address now

Vendor exceptions are translated into these at the edge of each adapter.
"""

from __future__ import annotations


class PushlaneError(Exception):
    """Something went wrong in pushlane."""

    exit_code = 1


class UserError(PushlaneError):
    """The request cannot be carried out as it stands."""


class TaskConflict(UserError):
    """Another task or another submit stands in the way."""


class InvalidChange(UserError):
    """The task cannot make this change now."""


class BadInput(UserError):
    """A file, row, column, template or option cannot be used."""


class MalformedPush(PushlaneError):
    """Bytes on a lane are not a push."""


class UnknownFormat(PushlaneError):
    """Something is stored in a format that this version of pushlane does not read.

    `version` is its number; 0 where the format has none, and a value in it is not known. `task_id`
    is set where it is a task. `fault` says in few words what is wrong, `way_out` what to do.
    """

    def __init__(
        self, version: int, what: str = "a message on a lane", *, task_id: str = ""
    ) -> None:
        self.version = version
        cause = (
            f"has format {version}, written by a newer version of pushlane"
            if version
            else "holds something that this version of pushlane does not read"
        )
        self._set(f"{what} {cause}", "upgrade this process", task_id)
        super().__init__(f"{self.fault}: it is left as it is; {self.way_out}")

    def _set(self, fault: str, way_out: str, task_id: str) -> None:
        self.fault = fault
        self.way_out = way_out
        self.task_id = task_id


class OutdatedFormat(UnknownFormat):
    """Something is in a form that only versions before 0.2.0 wrote, which release 0.2.0 reads."""

    def __init__(self, what: str) -> None:
        self.version = 0
        way_out = "run release 0.2.0 until none is left (docs/upgrades.md, From before 0.2.0)"
        self._set(f"{what} is in a form from before release 0.2.0", way_out, "")
        PushlaneError.__init__(self, f"{self.fault}: it is left as it is; {way_out}")


class UnknownLane(PushlaneError):
    """There is no such lane: it was dropped with its task."""


class Unreachable(PushlaneError):
    """A service does not answer."""

    exit_code = 3


class TaskInDoubt(Unreachable):
    """The registry does not have a task now, and nothing says that it is over: ask again.

    So it is after Redis has lost something that its journal still has.
    """

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(
            f"the registry does not have task {task_id} now, and nothing says that it was "
            "forgotten: Redis may have lost it. A running dispatcher restores it from the task "
            "topic; the lookup is repeated"
        )
