"""The client by which an application submits tasks, looks at them and changes them.

A thin face over the backend for one event loop. It never delivers: that is the dispatcher's.
"""

from __future__ import annotations

from pushlane.backends.backend import Connect, connect
from pushlane.client.operations import Operations
from pushlane.client.sync import SyncClient
from pushlane.settings import Settings


class Client(Operations):
    """A connection to a backend, open while it is entered: `async with Client() as client: ...`.

    Settings are those of `PUSHLANE_*` and `pushlane.toml` unless given. Every method raises
    `Unreachable` when a service does not answer, `UnknownTask` for an id that is no task's, and
    `BadInput` for a value that cannot be. Values with just one meaning are accepted: `"3"` for a
    quota of 3, `HIGH` for a level, a datetime with a zone or a text like `2h` for a time. A test
    may give it another way to a backend, like `MemoryBackend().connect`.
    """

    @staticmethod
    def sync(settings: Settings | None = None, *, connect: Connect = connect) -> SyncClient:
        """Return a client with the same operations that blocks: `with Client.sync() as client:`.

        It is for code without an event loop: a script, Django, Flask. Any thread may call it.
        """
        return SyncClient(settings, connect=connect)
