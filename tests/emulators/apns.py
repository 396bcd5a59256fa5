"""APNs as Apple describes it: checks the token, the headers and the payload of each request.

Without TLS. `python -m tests.emulators.apns --port 0 --keys DIR` prints its URL and writes the key
and the settings of a sink that may use it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from uuid import UUID

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tests.emulators.arrivals import arrival_line
from tests.emulators.http2_server import Answer, Http2Server, Reaction, Request

KEY_ID = "ABC123DEFG"
TEAM_ID = "DEF123GHIJ"
TOPIC = "com.example.shop"
ENDINGS = {
    "alert": "",
    "background": "",
    "complication": ".complication",
    "controls": ".push-type.controls",
    "fileprovider": ".pushkit.fileprovider",
    "liveactivity": ".push-type.liveactivity",
    "location": ".location-query",
    "pushtotalk": ".voip-ptt",
    "voip": ".voip",
    "widgets": ".push-type.widgets",
}
_PATH = re.compile(r"/3/device/((?:[0-9a-f]{2})+)", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STREAMS = 1000
_OLDEST_S, _AHEAD_S, _UPDATES_S = 3600, 60, 1200


class Apns:
    """Answers as APNs does. `dead` are device tokens by when they ended, in ms; `bad` are of
    another environment or app. `says` replaces the answer to what is a valid request.

    Of all connections together it takes one new provider token in 20 minutes: the strictest reading
    of Apple's rule.
    """

    def __init__(
        self,
        *,
        topic: str = TOPIC,
        latency_s: float = 0.0,
        log: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.key = generate_private_key(SECP256R1())
        self.topic = topic
        self.latency_s = latency_s
        self.log = log
        self.now = now
        self.dead: dict[str, int] = {}
        self.bad: dict[str, str] = {}
        self.says: Callable[[Request], Reaction | None] = lambda request: None
        self.delivered: list[Request] = []
        self.tokens: dict[str, float] = {}
        self.server = Http2Server(self.react, most_streams=1)

    def pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def react(self, request: Request) -> Reaction:
        return (
            self._refusal_of_token(request)
            or self._refusal(request)
            or self.says(request)
            or self._deliver(request)
        )

    def _deliver(self, request: Request) -> Answer:
        self.delivered.append(request)
        if self.log is not None:
            os.write(self.log, arrival_line(json.loads(request.body)))
        headers = {"apns-id": request.headers["apns-id"]}
        return Answer(200, headers=headers, after_s=self.latency_s, most_streams=_STREAMS)

    def _refusal_of_token(self, request: Request) -> Answer | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "bearer" or not token:
            return refused(403, "MissingProviderToken")
        issued_at_s = self._issued_at_s(token)
        if issued_at_s is None or issued_at_s > self.now() + _AHEAD_S:
            return refused(403, "InvalidProviderToken")
        if issued_at_s < self.now() - _OLDEST_S:
            return refused(403, "ExpiredProviderToken")
        last_s = max(self.tokens.values(), default=0.0)
        if token not in self.tokens and self.now() - last_s < _UPDATES_S:
            return refused(429, "TooManyProviderTokenUpdates")
        self.tokens.setdefault(token, self.now())
        return None

    @lru_cache  # noqa: B019 - a server lives as long as its test
    def _issued_at_s(self, token: str) -> float | None:
        """When a token was signed, None if it is not ours."""
        options = {"verify_iat": False, "require": ["iat", "iss"]}
        public = self.key.public_key()
        try:
            found = jwt.decode_complete(
                token, public, algorithms=["ES256"], issuer=TEAM_ID, options=options
            )
        except jwt.PyJWTError:
            return None
        return found["payload"]["iat"] if found["header"].get("kid") == KEY_ID else None

    def _refusal(self, request: Request) -> Answer | None:
        headers, path = request.headers, _PATH.fullmatch(request.path)
        if request.method != "POST":
            return refused(405, "MethodNotAllowed")
        if not request.path.startswith("/3/device/"):
            return refused(404, "BadPath")
        if reason := self._bad_header(headers) or self._bad_body(headers, request.body):
            return refused(413 if reason == "PayloadTooLarge" else 400, reason)
        if path is None:
            return refused(400, "BadDeviceToken")
        device = path[1].lower()
        if device in self.dead:
            return refused(410, "Unregistered", self.dead[device])
        if device in self.bad:
            return refused(400, self.bad[device])
        return None

    def _bad_header(self, headers: dict[str, str]) -> str:
        push_type, priority = headers.get("apns-push-type"), headers.get("apns-priority", "10")
        if "apns-topic" not in headers:
            return "MissingTopic"
        if push_type not in ENDINGS:
            return "InvalidPushType"
        if headers["apns-topic"] != self.topic + ENDINGS[push_type]:
            return "TopicDisallowed"
        allowed = {"5", "1"} if push_type == "background" else {"10", "5", "1"}
        if priority not in allowed:
            return "BadPriority"
        if not headers.get("apns-expiration", "0").isdigit():
            return "BadExpirationDate"
        if len(headers.get("apns-collapse-id", "").encode()) > 64:
            return "BadCollapseId"
        if not _UUID.fullmatch(headers.get("apns-id", str(UUID(int=0)))):
            return "BadMessageId"
        return ""

    def _bad_body(self, headers: dict[str, str], body: bytes) -> str:
        if not body or not isinstance(json.loads(body), dict):
            return "PayloadEmpty"
        most = 5120 if headers["apns-push-type"] == "voip" else 4096
        return "PayloadTooLarge" if len(body) > most else ""


def refused(status: int, reason: str, at_ms: int | None = None) -> Answer:
    """The answer of this code, with a time if it is 410."""
    body = {"reason": reason} if at_ms is None else {"reason": reason, "timestamp": at_ms}
    return Answer(status, json.dumps(body).encode())


async def _serve(given: argparse.Namespace) -> None:
    log = None
    if given.log:
        log = os.open(given.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    apns = Apns(latency_s=given.latency_ms / 1000, log=log)
    if given.answer:
        status, _, reason = given.answer.partition(":")
        apns.says = lambda request: refused(int(status), reason)
    async with apns.server.running(given.port) as server:
        if given.keys:
            _write_settings(apns, server.url, Path(given.keys))
        print(server.url, flush=True)
        await server.serve()


def _write_settings(apns: Apns, url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / f"AuthKey_{KEY_ID}.p8"
    key.touch(mode=0o600)
    key.write_text(apns.pem())
    (folder / "pushlane.toml").write_text(
        f'[sinks.apns]\nkind = "apns"\nkey_file = "{key.absolute()}"\nkey_id = "{KEY_ID}"\n'
        f'team_id = "{TEAM_ID}"\ntopic = "{TOPIC}"\nendpoint = "{url}"\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--answer", help="what every valid request gets, like 400:BadDeviceToken")
    parser.add_argument("--keys", help="a folder for the key and the settings of a sink")
    parser.add_argument("--log", help="a file that gets a line a delivered push")
    given = parser.parse_args()
    asyncio.run(_serve(given))


if __name__ == "__main__":
    main()
