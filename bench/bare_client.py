"""Posts bodies with an HTTP client in a bare loop, with no broker: the webhook sink beside it.

It posts so many bodies like ours, so many at once, and does nothing else. `CLIENTS` has them by
name; one of another name runs beside the first in each round of `bench sink`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvloop
from pyreqwest.client import Client, ClientBuilder

from pushlane.dispatcher.transport.answer import Answer, Heard
from pushlane.dispatcher.transport.loop_client import LoopClient, Seconds
from pushlane.dispatcher.transport.request import read_url

TASK = "bare"
_BODY = (
    b'{"push_id":"bare:%d","task_id":"bare","seq":%d,"attempt":1,"level":"high",'
    b'"recipient":"device-%d","title":"title","body":"%s","data":null}'
)
_TEXT = b"x" * 150
_TIMEOUT_S = 30.0


async def _by_pyreqwest(url: str, count: int, at_once: int) -> None:
    client = ClientBuilder().pool_max_idle_per_host(at_once).build()
    seqs = iter(range(1, count + 1))
    await asyncio.gather(*(_post(client, url, seqs) for _ in range(at_once)))
    await client.close()


async def _post(client: Client, url: str, seqs: Iterator[int]) -> None:
    for seq in seqs:
        body = _BODY % (seq, seq, seq, _TEXT)
        request = (
            client.post(url)
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", f"{TASK}:{seq}")
            .body_bytes(body)
            .build()
        )
        response = await request.send()
        assert response.status == 204


async def _by_loop(url: str, count: int, at_once: int) -> None:
    origin, path = read_url(url)
    json = {"Content-Type": "application/json"}
    client = LoopClient(origin, Seconds(_TIMEOUT_S), at_once, json)
    seqs = iter(range(1, count + 1))
    await asyncio.gather(*(_Chain(client, path, seqs).run() for _ in range(at_once)))
    await client.close()


class _Chain:
    """Posts a body as soon as the one before it is answered; opens a connection if none is free."""

    def __init__(self, client: LoopClient, path: str, seqs: Iterator[int]) -> None:
        self._client = client
        self._path = path
        self._seqs = seqs

    async def run(self) -> None:
        for seq in self._seqs:
            _require_taken(await self._client.send(self._path, *_request(seq)))
            self._left = asyncio.get_running_loop().create_future()
            self._post_next()
            if (left := await self._left) is not None:
                _require_taken(await self._client.send(self._path, *_request(left)))

    def _post_next(self) -> None:
        """Post the next body; leave it, or none, to `run` when that cannot be done."""
        seq = next(self._seqs, None)
        if seq is None or not self._client.post(self._path, *_request(seq), self._answered, seq):
            self._left.set_result(seq)

    def _answered(self, _: int, heard: Heard) -> None:
        _require_taken(heard)
        self._post_next()


def _request(seq: int) -> tuple[dict[str, str], bytes]:
    return {"Idempotency-Key": f"{TASK}:{seq}"}, _BODY % (seq, seq, seq, _TEXT)


def _require_taken(heard: Heard) -> None:
    assert isinstance(heard, Answer), heard
    assert heard.status == 204


CLIENTS: dict[str, Callable[[str, int, int], Coroutine[Any, Any, None]]] = {
    "pyreqwest": _by_pyreqwest,
    "loop": _by_loop,
}
LOOPS = {"pyreqwest": "bare pyreqwest loop", "loop": "bare loop of our own client"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=tuple(CLIENTS))
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("at_once", type=int)
    options = parser.parse_args()
    uvloop.run(CLIENTS[options.client](options.url, options.count, options.at_once))


if __name__ == "__main__":
    main()
