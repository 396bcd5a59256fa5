"""An HTTP server for tests of what posts: in this process, and told what to answer."""

import asyncio
from contextlib import asynccontextmanager

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers every request with the same bytes, keeps what it got, or does as `react` says."""

    def __init__(self, answer=OK, react=None, keep=False):
        self.answer = answer
        self.react = react
        self.keep = keep
        self.heads = []
        self.bodies = []
        self.connections = 0

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/push"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                self.heads.append(head)
                if self.react is None:
                    writer.write(self.answer)
                    await writer.drain()
                    continue
                await self.react(writer)
                if not self.keep:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()
