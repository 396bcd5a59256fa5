"""What the webhook sink is measured beside: the same HTTP client in a bare loop, with no broker.

It posts so many bodies like ours, so many at once, and does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

import uvloop
from pyreqwest.client import Client, ClientBuilder

TASK = "bare"
_BODY = (
    b'{"push_id":"bare:%d","task_id":"bare","seq":%d,"attempt":1,"level":"high",'
    b'"recipient":"device-%d","title":"title","body":"%s","data":null}'
)
_TEXT = b"x" * 150


async def _post_all(url: str, count: int, at_once: int) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("at_once", type=int)
    options = parser.parse_args()
    uvloop.run(_post_all(options.url, options.count, options.at_once))


if __name__ == "__main__":
    main()
