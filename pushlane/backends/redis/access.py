"""Who we are to Redis, and which certificates count; read again when files of it change."""

from __future__ import annotations

from typing import NamedTuple

from redis.credentials import CredentialProvider

from pushlane.lanes.secret import Secret
from pushlane.settings import Settings
from pushlane.settings.transport import tls_files
from pushlane.util.files import WatchedFile
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
        return _Login(self) if self.password or self.file else None

    def present_password(self) -> str:
        if self.file is not None:
            return self.file.last_text()
        return self.password.reveal() if self.password else ""


class _Login(CredentialProvider):
    def __init__(self, access: RedisAccess) -> None:
        self._access = access

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._access.present_password()
        return (self._access.user, password) if self._access.user else (password,)

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
