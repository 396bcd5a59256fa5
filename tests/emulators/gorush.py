"""A gorush server, as its router and its senders behave: who failed is named, with `sync` alone.

See router/server.go of appleboy/gorush. As a process: `python -m tests.emulators.gorush --sync`. A
device token `ERROR:…` fails with that error, such as `Unregistered:device-7`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulators.http1_server import note, options, served
from tests.emulators.http2_server import Answer, Reaction, Request

PLATFORMS = {1: "ios", 2: "android", 3: "huawei"}
TEXTS = ("title", "message", "topic", "priority", "notif_id", "huawei_data", "huawei_ttl")


@dataclass
class Gorush:
    """`authorization` is what a proxy in front of it wants: gorush itself asks for none."""

    sync: bool = True
    enabled: Collection[str] = ("ios", "android", "huawei")
    max_notification: int = 100
    authorization: str = ""
    log: Path | None = None
    latency_s: float = 0.0
    sent: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, request: Request) -> Reaction:
        if self.authorization and request.headers.get("authorization") != self.authorization:
            return Answer(401)
        if (request.method, request.path) != ("POST", "/api/push"):
            return Answer(404, b"404 page not found")
        notifications = _bound(request.body)
        if notifications is None:
            return _refused("Missing notifications field.")
        if not notifications:
            return _refused("Notifications field is empty.")
        if len(notifications) > self.max_notification:
            over = f"Number of notifications({len(notifications)}) over limit"
            return _refused(f"{over}({self.max_notification})")
        counts, logs = self._handle(notifications)
        body = {"success": "ok", "counts": counts, "logs": logs}
        return Answer(200, json.dumps(body).encode(), after_s=self.latency_s)

    def _handle(self, notifications: list[dict[str, Any]]) -> tuple[int, list[dict[str, str]]]:
        counts, logs = 0, []
        for one in notifications:
            platform = PLATFORMS.get(one["platform"], "")
            if platform not in self.enabled:
                continue
            tokens = [*one["tokens"], *([one["to"]] if one.get("to") else [])]
            counts += len(tokens) + bool(one.get("topic"))
            for token in tokens:
                if error := token.rpartition(":")[0]:
                    logs.append(_entry(one, platform, token, error))
                else:
                    self.sent.append(one)
                    note(self.log, one.get("notif_id", "-"))
        return counts, logs if self.sync else []


def _bound(body: bytes) -> list[dict[str, Any]] | None:
    """Return the notifications; None when gorush could not bind one of them to its struct."""
    try:
        notifications = json.loads(body)["notifications"]
        for one in notifications:
            is_fit = isinstance(one["platform"], int) and isinstance(one["tokens"], list)
            is_fit &= all(isinstance(one.get(name, ""), str) for name in TEXTS)
            is_fit &= isinstance(one.get("data", {}), dict)
            is_fit &= isinstance(one.get("expiration", 0), int)
            if not is_fit:
                return None
    except (ValueError, KeyError, TypeError):
        return None
    assert isinstance(notifications, list)
    return notifications


def _refused(message: str) -> Answer:
    return Answer(400, json.dumps({"code": 400, "message": message}).encode())


def _entry(one: dict[str, Any], platform: str, token: str, error: str) -> dict[str, str]:
    return {
        "notif_id": one.get("notif_id", ""),
        "type": "failed-push",
        "platform": platform,
        "token": token,
        "message": one.get("message", ""),
        "error": error,
    }


def main() -> None:
    parser = options("A gorush server.")
    parser.add_argument("--sync", action="store_true", help="core.sync: true")
    parser.add_argument("--enabled", default="ios,android,huawei")
    parser.add_argument("--keys", type=Path, help="writes the authorization that it wants")
    given = parser.parse_args()
    authorization = ""
    if given.keys:
        given.keys.mkdir(parents=True, exist_ok=True)
        path = given.keys / "authorization"
        path.touch(mode=0o600)
        authorization = f"Bearer {secrets.token_hex(16)}"
        path.write_text(authorization + "\n")
    gorush = Gorush(
        sync=given.sync,
        enabled=given.enabled.split(","),
        authorization=authorization,
        log=given.log,
        latency_s=given.latency_ms / 1000,
    )
    served(gorush, given.port, "")


if __name__ == "__main__":
    main()
