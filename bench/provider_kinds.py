"""Makes the pushes, keys and bare requests of `bench providers`, by kind of provider."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from pyreqwest.client import Client

from pushlane.core.push import Push
from pushlane.dispatcher.sinks.es256 import base64url
from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.sinks.webpush import BrowserKeys, encrypt
from pushlane.dispatcher.transport.answer import Answer, Heard
from pushlane.dispatcher.transport.http2 import Http2Client
from pushlane.dispatcher.transport.loop_client import Seconds
from pushlane.dispatcher.transport.pyreqwest_client import built, client_builder
from pushlane.dispatcher.transport.request import read_url
from pushlane.settings.sinks import SinkSettings

KINDS = {"fcm": "FCM", "apns": "APNs", "webpush": "Web Push"}

WITH_CHOICE = ("fcm", "apns")
STREAMS = 100
_SWITCH_S = 0.0001  # as `pushlane dispatch` does with sinks that speak HTTP
_TITLE, _BODY = "title", "x" * 150
_BROWSER = ec.generate_private_key(ec.SECP256R1())
_SECRET = bytes(range(16))

Request = tuple[str, dict[str, str], bytes]
"""The path, the headers and the body of a request."""


def write_keys(folder: Path) -> None:
    """Write credentials that the providers would take, were they to check them."""
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "key.p8").write_bytes(_pem(key))
    (folder / "account.pem").write_bytes(_pem(rsa.generate_private_key(65_537, 2_048)))


def sink_settings(kind: str, folder: Path, url: str, streams: int, http2: str = "") -> SinkSettings:
    """Return the settings of a sink of this kind that goes to the provider at a URL.

    `http2` is what speaks HTTP/2, where the kind has a choice.
    """
    options = {"fcm": _fcm, "apns": _apns, "webpush": _webpush}[kind](folder, url)
    if http2 and kind in WITH_CHOICE:
        options["http2"] = http2
    return SinkSettings(kind=kind, options={**options, "streams": streams})


def _fcm(folder: Path, url: str) -> dict[str, Any]:
    account = {
        "type": "service_account",
        "project_id": "bench",
        "private_key": (folder / "account.pem").read_text(),
        "client_email": "bench@bench.example",
        "token_uri": f"{url}/token",
    }
    path = folder / "account.json"
    path.write_bytes(msgspec.json.encode(account))
    return {"credentials_file": str(path), "endpoint": url}


def _apns(folder: Path, url: str) -> dict[str, Any]:
    return {
        "key_file": str(folder / "key.p8"),
        "key_id": "KEY4567890",
        "team_id": "TEAM567890",
        "topic": "com.example.app",
        "endpoint": url,
    }


def _webpush(folder: Path, url: str) -> dict[str, Any]:
    return {
        "vapid_key_file": str(folder / "key.p8"),
        "subject": "mailto:bench@example.com",
        "hosts": ["localhost"],
        "allow": ["localhost"],
        "only_http2": True,
    }


def push_to(kind: str, url: str) -> Callable[[str, int], Push]:
    """Return what makes the pushes of a task; each has an address that tells task and seq."""
    address = _addresses(kind, url)

    def make(task_id: str, seq: int) -> Push:
        return Push(task_id, seq, address(f"{task_id}-{seq}"), _TITLE, _BODY)

    return make


def _addresses(kind: str, url: str) -> Callable[[str], str]:
    if kind == "fcm":
        return str
    if kind == "apns":
        return lambda word: word.encode().hex()
    keys = {"p256dh": base64url(_point(_BROWSER)), "auth": base64url(_SECRET)}
    endpoint = url.replace("127.0.0.1", "localhost")  # browsers' push services have names
    made = msgspec.json.encode({"endpoint": f"{endpoint}/push/WORD", "keys": keys}).decode()
    return lambda word: made.replace("WORD", word)


def _requests(kind: str, count: int) -> Iterator[Request]:
    """Yield requests as a program would make them that does nothing else."""
    headers = {"Authorization": "Bearer " + "x" * 200, "Content-Type": "application/json"}
    if kind == "fcm":
        for seq in range(1, count + 1):
            message = {
                "token": f"bare-{seq}",
                "notification": {"title": _TITLE, "body": _BODY},
                "android": {"priority": "HIGH"},
            }
            path = "/v1/projects/bench/messages:send"
            yield path, headers, msgspec.json.encode({"message": message})
    elif kind == "apns":
        headers |= {"apns-topic": "com.example.app", "apns-push-type": "alert"}
        alert = {"aps": {"alert": {"title": _TITLE, "body": _BODY}}}
        for seq in range(1, count + 1):
            token = f"bare-{seq}".encode().hex()
            yield f"/3/device/{token}", headers, msgspec.json.encode(alert)
    else:
        headers = {"Authorization": "vapid " + "x" * 300, "Content-Encoding": "aes128gcm"}
        headers |= {"TTL": "86400", "Urgency": "high"}
        body = {"title": _TITLE, "body": _BODY}
        for seq in range(1, count + 1):
            yield f"/push/bare-{seq}", headers, encrypt(msgspec.json.encode(body), _browser())


async def _by_pyreqwest(kind: str, url: str, count: int, at_once: int) -> None:
    clients = [
        built(client_builder(1, Timeouts(30.0), {}), only_http2=True)
        for _ in range(at_once // STREAMS)
    ]
    requests = _requests(kind, count)
    for client in clients:  # the settings of the other end are known from then on
        await client.get(url).build().send()
    posting = (_post(clients[n % len(clients)], url, requests) for n in range(at_once))
    await asyncio.gather(*posting)
    for client in clients:
        await client.close()


async def _post(client: Client, url: str, requests: Iterator[Request]) -> None:
    for path, headers, body in requests:
        response = await client.post(url + path).headers(headers).body_bytes(body).build().send()
        assert response.status < 300


async def _by_ngh2(kind: str, url: str, count: int, at_once: int) -> None:
    origin, _ = read_url(url)
    client = Http2Client(origin, Seconds(30.0), at_once, {}, streams=STREAMS)
    requests, over = _requests(kind, count), asyncio.Event()
    for _ in range(at_once // STREAMS):
        assert isinstance(await client.send(*next(requests)), Answer)
    left = at_once

    def post(_: object, heard: Heard) -> None:
        nonlocal left
        assert isinstance(heard, Answer)
        assert heard.status < 300
        request = next(requests, None)
        if request is not None:
            assert client.post(*request, post, None)
            return
        left -= 1
        if not left:
            over.set()

    for request in islice(requests, at_once):
        assert client.post(*request, post, None)
    await over.wait()
    await client.close()


CLIENTS: dict[str, Callable[[str, str, int, int], Coroutine[Any, Any, None]]] = {
    "pyreqwest": _by_pyreqwest,
    "ngh2": _by_ngh2,
}
"""The clients of the bare loops by name, as `bare_client.CLIENTS` has them for the webhook."""


def _browser() -> BrowserKeys:
    """Return the keys as they come out of a subscription, which is another one for each push."""
    return BrowserKeys.of(_point(_BROWSER), _SECRET)


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=tuple(CLIENTS))
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("at_once", type=int)
    options = parser.parse_args()
    sys.setswitchinterval(_SWITCH_S)
    post = CLIENTS[options.client]
    uvloop.run(post(options.kind, options.url, options.count, options.at_once))


if __name__ == "__main__":
    main()
