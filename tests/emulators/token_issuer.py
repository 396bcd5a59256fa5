"""An issuer of OAuth 2.0 tokens on this machine: discovery, and client credentials (RFC 6749)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs


class TokenIssuer:
    """Gives tokens that `make` makes to the clients that it knows, by id and secret.

    While `silent` is set it answers nothing; `reached` is set once it was asked then.
    """

    def __init__(self, make: Callable[[], str], lifetime_s: float | str = 3600) -> None:
        self.clients = {"dispatch": "hush-hush"}
        self.asked: list[dict[str, str]] = []
        self.lifetime_s = lifetime_s
        self.silent, self.reached = asyncio.Event(), asyncio.Event()
        self.endpoint = ""
        self.url = ""
        self._make = make

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TokenIssuer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.endpoint = f"{self.url}/token"
        async with server:
            yield self

    def client(self, **changes: str) -> str:
        """Return the content of a file of the client."""
        known = {"client_id": "dispatch", "client_secret": "hush-hush", **changes}
        return json.dumps({"type": "client_credentials", **known})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if self.silent.is_set():
                self.reached.set()
                await reader.read()  # until the client hangs up
                return
            length = next(
                (
                    int(line.split(":")[1])
                    for line in head.lower().split("\r\n")
                    if line.startswith("content-length")
                ),
                0,
            )
            status, answer = self._answer(head, (await reader.readexactly(length)).decode())
            body = json.dumps(answer).encode()
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _answer(self, head: str, body: str) -> tuple[int, dict[str, object]]:
        if head.startswith("GET /.well-known/openid-configuration "):
            return 200, {"issuer": self.url, "token_endpoint": self.endpoint}
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.asked.append(form)
        if self.clients.get(form.get("client_id", "")) != form.get("client_secret"):
            return 401, {"error": "invalid_client"}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        token = self._make()
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}
