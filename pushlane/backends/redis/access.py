"""Who we are to Redis, which certificates count, and what each role may do there.

Files of passwords and certificates are read again when they change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redis.credentials import CredentialProvider

from pushlane.backends.operations import RoleLogin, Roles
from pushlane.backends.redis.keys import Keys
from pushlane.settings import Settings
from pushlane.settings.transport import tls_files
from pushlane.util.files import WatchedFile
from pushlane.util.texts import Secret
from pushlane.util.tls import TlsFiles


class RedisAccess(NamedTuple):
    """A user with a password, which is given or in a file, and files of certificates."""

    files: TlsFiles
    user: str = ""
    password: Secret | None = None
    file: WatchedFile | None = None

    @property
    def name(self) -> str:
        """The user and the place of the password, for errors."""
        user = f"user {self.user or 'default'}"
        if self.file is not None:
            return f"{user} with the password of {self.file.setting} {self.file.path}"
        return f"{user} with redis_password" if self.password else f"{user} without a password"

    def login(self) -> CredentialProvider | None:
        """Return what tells the password for each new connection, None where there is none."""
        if self.file is not None:
            return _Login(self.user, self.file.last_text)
        return _Login(self.user, self.password.reveal) if self.password else None


class _Login(CredentialProvider):
    def __init__(self, user: str, password: Callable[[], str]) -> None:
        self._user = user
        self._password = password

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        return (self._user, self._password()) if self._user else (self._password(),)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


NO_ACCESS = RedisAccess(TlsFiles("redis"))


def redis_access(settings: Settings) -> RedisAccess:
    """Return the access that the settings name.

    Raises:
        BadInput: a file cannot be read.
    """
    files = tls_files(settings, "redis")
    files.check_ca()
    files.check_pair()
    file = None
    if settings.redis_password_file is not None:
        file = WatchedFile("redis_password_file", settings.redis_password_file)
        file.text()
    return RedisAccess(files, settings.redis_user or "", settings.redis_password, file)


# INFO tells which server filled the registry; SLOTS and so on are what clients of a Cluster ask.
_COMMANDS = (
    "+@read +@write +@connection -@dangerous +eval +evalsha +script|load +time +info +publish "
    "+subscribe +unsubscribe +cluster|slots +cluster|shards +cluster|nodes +cluster|myid"
)
_FAMILIES_OF_WRITERS = (
    *("lock", "seen", "moved", "counts", "mark", "rate", "places", "tallies", "suppressed"),
    *("process", "lease", "fence"),
)


def redis_logins(namespace: str, roles: Roles) -> list[RoleLogin]:
    """Return a line for each role that uses Redis; the pipeline's receipts need none.

    Writers reach all but the claims of pushes and what was counted of recipients.
    """
    keys = Keys(namespace)
    base = keys.lock("").removesuffix("lock:")
    named = [key for key in vars(keys).values() if isinstance(key, str)]
    families = tuple(f"{base}{family}:" for family in _FAMILIES_OF_WRITERS)
    of_writers = [key for key in named if not key.startswith(families)]
    of_writers += [f"{family}*" for family in families]
    return [
        RoleLogin(roles.dispatcher, _line(roles.dispatcher, [f"{base}*"], keys)),
        RoleLogin(roles.writer, _line(roles.writer, of_writers, keys)),
    ]


def _line(role: str, patterns: list[str], keys: Keys) -> str:
    allowed = " ".join(f"~{pattern}" for pattern in patterns)
    channel = f"resetchannels &{keys.change_channel}"
    return f"ACL SETUSER {role} reset on >PASSWORD {allowed} {channel} {_COMMANDS}"
