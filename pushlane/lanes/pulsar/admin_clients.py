"""The HTTP client of the admin REST, made anew when files of certificates are replaced."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from pyreqwest.client import Client, ClientBuilder

from pushlane.core.errors import BadInput
from pushlane.util.tls import TlsFiles

_TIMEOUT_S = 15
_CONNECTIONS = 32
_THREAD_ENDS_S = 0.03


class AdminClients:
    """The present client. One before it ends by itself with the requests that it has under way.

    Raises:
        BadInput: a file of certificates cannot be used.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp = files.stamp()
        self._client = _made(files)

    def current(self) -> Client:
        """Return the client, a new one when files have changed.

        Files that cannot be used any more leave it as it was.
        """
        stamp = self._files.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            with suppress(BadInput):
                self._client = _made(self._files)
        return self._client

    async def close(self) -> None:
        """Let go of the client while the interpreter lives.

        Its thread ends then, and aborts a process whose interpreter ends at the same moment.
        """
        await self._client.close()
        del self._client
        await asyncio.sleep(_THREAD_ENDS_S)


def _made(files: TlsFiles) -> Client:
    builder = (
        ClientBuilder()
        .timeout(timedelta(seconds=_TIMEOUT_S))
        .max_connections(_CONNECTIONS)
        .follow_redirects(False)
    )
    if pem := files.check_ca():
        builder = builder.add_root_certificate_pem(pem)
    if pem := files.check_pair():
        builder = builder.identity_pem(pem)
    return builder.build()
