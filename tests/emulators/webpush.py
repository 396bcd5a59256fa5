"""A push service of browsers (RFC 8030) on this machine, over HTTP/2 without TLS.

It checks what a push service would, and more: the token of VAPID (RFC 8292) with PyJWT, TTL,
Urgency and Topic, the size, and that the browser can read the body. As a process:

    python -m tests.emulators.webpush --keys DIR [--port 0] [--log PATH] [--latency-ms N] …

prints its URL, and writes DIR/vapid.pem for a sink's `vapid_key_file` and DIR/subscriptions.jsonl,
whose rows have a recipient and a subscription.
"""

import argparse
import asyncio
import json
import os
import re
import time
from base64 import urlsafe_b64decode
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.emulators.arrivals import arrival_line
from tests.emulators.http2_server import Answer, Http2Server
from tests.emulators.webpush_browser import Browser, Undecryptable, base64url

LARGEST_BYTES = 4096
LONGEST_TOKEN_S = 24 * 3600
OTHER_KEY = (  # FCM's words
    "the VAPID credentials in the authorization header do not correspond to the credentials used "
    "to create the subscriptions."
)
URGENCIES = {"very-low", "low", "normal", "high"}
_AUTHORIZATION = re.compile(r"vapid t=([\w.-]+), *k=([\w-]+)")
_TOPIC = re.compile(r"[\w-]{1,32}", re.ASCII)


class Refused(Exception):
    """The service does not take a push."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.answer = Answer(status, json.dumps({"reason": reason}).encode())


class WebPushEmulator:
    """A push service with `count` subscriptions, all of the key `private`.

    Told what to answer by `answers`, given first and in order, `at`, for a subscription, and
    `always`. A subscription is gone after `gone_after` pushes. `delivered` has the token of the
    subscription, the plaintext and the headers of each push that was taken.
    """

    def __init__(self, count=1, *, most_streams=100, latency_s=0.0, gone_after=None, log=None):
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.browsers = {one.token: one for one in (Browser() for _ in range(count))}
        self.server = Http2Server(self.react, most_streams)
        self.latency_s = latency_s
        self.gone_after = gone_after
        self.answers, self.at, self.always = [], {}, None
        self.delivered, self.taken = [], {}
        self.keeps = True
        self.authorizations = set()
        self._log = log

    @asynccontextmanager
    async def running(self, port=0):
        async with self.server.running(port):
            self.url = self.server.url
            yield self

    @property
    def subscriptions(self):
        return [one.subscription(self.url) for one in self.browsers.values()]

    @property
    def vapid_pem(self):
        encoding = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        return self.private.private_bytes(*encoding).decode()

    @property
    def vapid_text(self):
        """The private key as tools for Web Push print it."""
        return base64url(self.private.private_numbers().private_value.to_bytes(32, "big"))

    @property
    def public_text(self):
        return base64url(_point(self.private))

    def react(self, request):
        try:
            answer = self._answer(request)
        except Refused as refused:
            answer = refused.answer
        if self.latency_s and isinstance(answer, Answer):
            return replace(answer, after_s=answer.after_s or self.latency_s)
        return answer

    def _answer(self, request):
        browser = self.browsers.get(request.path.removeprefix("/push/"))
        if request.method != "POST" or browser is None:
            raise Refused(404, "NotFound")
        self._authenticate(request.headers)
        require_headers(request.headers)
        if len(request.body) > LARGEST_BYTES:
            raise Refused(413, "PayloadTooLarge")
        told = self.answers.pop(0) if self.answers else self.at.get(browser.token, self.always)
        if told is not None:
            return told
        taken = self.taken[browser.token] = self.taken.get(browser.token, 0) + 1
        if self.gone_after is not None and taken > self.gone_after:
            raise Refused(410, "Unsubscribed")
        return self._deliver(browser, request)

    def _authenticate(self, headers):
        value = headers.get("authorization", "")
        if value in self.authorizations:
            return
        found = _AUTHORIZATION.fullmatch(value)
        if found is None:
            raise Refused(401, "MissingVapid")
        if found[2] != self.public_text:
            raise Refused(403, OTHER_KEY)
        try:
            point = urlsafe_b64decode(found[2] + "=")
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
            must = {"require": ["aud", "exp", "sub"]}
            claims = jwt.decode(found[1], key, ["ES256"], audience=self.url, options=must)
        except jwt.InvalidTokenError as error:
            raise Refused(403, "BadJwtToken") from error
        if claims["exp"] > time.time() + LONGEST_TOKEN_S:
            raise Refused(403, "BadJwtToken")
        if not claims["sub"].startswith(("mailto:", "https:")):
            raise Refused(403, "BadJwtToken")
        self.authorizations.add(value)

    def _deliver(self, browser, request):
        try:
            plaintext = browser.decrypt(request.body)
        except Undecryptable as error:  # no service can know: it is for who tests
            raise Refused(400, "Undecryptable") from error
        if self.keeps:
            self.delivered.append((browser.token, plaintext, request.headers))
        if self._log is not None:
            os.write(self._log, log_line(plaintext))
        location = f"{self.url}/message/{self.taken[browser.token]}"
        return Answer(201, headers={"location": location, "ttl": request.headers["ttl"]})


def require_headers(headers):
    """Raise Refused for what RFC 8030 asks for and is not there."""
    if headers.get("content-encoding") != "aes128gcm":
        raise Refused(400, "BadEncoding")
    if not re.fullmatch("[0-9]+", headers.get("ttl", "")):
        raise Refused(400, "MissingTtl")
    if headers.get("urgency", "normal") not in URGENCIES:
        raise Refused(400, "BadUrgency")
    if not _TOPIC.fullmatch(headers.get("topic", "topic")):
        raise Refused(400, "BadTopic")


def log_line(plaintext):
    content = json.loads(plaintext)
    return arrival_line((content.get("data") if isinstance(content, dict) else None) or {})


def _point(private):
    return private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _write(path, text):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(file, "w") as out:
        out.write(text)


def _write_keys(emulator, folder):
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "vapid.pem", emulator.vapid_pem)
    rows = [
        json.dumps({"recipient": f"browser-{number}", "subscription": json.loads(text)})
        for number, text in enumerate(emulator.subscriptions, 1)
    ]
    _write(folder / "subscriptions.jsonl", "".join(f"{row}\n" for row in rows))


async def _serve(options):
    log = None
    if options.log:
        log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    emulator = WebPushEmulator(
        options.subscriptions,
        most_streams=options.streams,
        latency_s=options.latency_ms / 1000,
        gone_after=options.gone_after,
        log=log,
    )
    emulator.keeps = False
    emulator.always = Answer(options.answer) if options.answer else None
    async with emulator.running(options.port):
        if options.keys:
            _write_keys(emulator, options.keys)
        print(emulator.url, flush=True)
        await emulator.server.serve()


def main():
    parser = argparse.ArgumentParser(description="A push service of browsers on this machine")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--keys", type=Path, help="folder for vapid.pem and subscriptions.jsonl")
    parser.add_argument("--subscriptions", type=int, default=100, help="how many there are")
    parser.add_argument("--log", help="file that gets a line a delivered push")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--streams", type=int, default=100, help="on one connection")
    parser.add_argument("--answer", type=int, help="what every push gets")
    parser.add_argument("--gone-after", type=int, help="pushes that a subscription lives for")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
