"""FCM's HTTP v1 API on this machine, with a token server that signs service accounts in.

It checks what FCM would: the access token, the project, the message. Errors are in the form of
https://firebase.google.com/docs/cloud-messaging/error-codes. As a process:

    python -m tests.emulators.fcm --keys DIR [--port 0] [--log PATH] [--latency-ms N]

prints its URL, and writes DIR/service-account.json for a sink's `credentials_file`.
"""

import argparse
import asyncio
import json
import os
import re
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.emulators.arrivals import arrival_line
from tests.emulators.google_token import GoogleTokenServer
from tests.emulators.http2_server import Answer, Http2Server

TYPE = "type.googleapis.com/"
TARGETS = ("token", "fid", "topic", "condition")
FIELDS = {*TARGETS, "name", "data", "notification", "android", "webpush", "apns", "fcm_options"}
LARGEST_BYTES = 4096
LARGEST_TOPIC_BYTES = 2048
INVALID_TOKEN = "The registration token is not a valid FCM registration token"
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_SEND = re.compile(r"/v1/projects/([^/]+)/messages:send")
_TTL = re.compile(r"\d+(\.\d{1,9})?s")
_ADDRESS = re.compile(r"[\w:-]+")


def fcm_error(status, *details, message="", headers=None, after_s=0.0):
    """An error as FCM writes it."""
    error = {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}
    if details:
        error["details"] = list(details)
    body = json.dumps({"error": error}).encode()
    return Answer(status, body, {"content-type": "application/json", **(headers or {})}, after_s)


def fcm_code(code):
    return {"@type": f"{TYPE}google.firebase.fcm.v1.FcmError", "errorCode": code}


def bad_field(field, description="Invalid value"):
    violation = {"field": field, "description": description}
    return {"@type": f"{TYPE}google.rpc.BadRequest", "fieldViolations": [violation]}


def error_info(reason):
    return {"@type": f"{TYPE}google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}


def quota_failure(subject, description):
    violation = {"subject": subject, "description": description}
    return {"@type": f"{TYPE}google.rpc.QuotaFailure", "violations": [violation]}


def invalid_field(field):
    return fcm_error(400, fcm_code("INVALID_ARGUMENT"), bad_field(field), message="Invalid value")


DEVICE_RATE = fcm_error(
    429, fcm_code("QUOTA_EXCEEDED"), quota_failure("device", "Device message rate exceeded")
)
PROJECT_RATE = fcm_error(
    429, error_info("RATE_LIMIT_EXCEEDED"), message="Quota exceeded for 'Send requests per minute'"
)
UNREGISTERED = fcm_error(404, fcm_code("UNREGISTERED"), message="Requested entity was not found.")


class FcmEmulator:
    """FCM for one project. `delivered` are the messages it took.

    Told what to answer by `answers`, given first and in order, and by `at`, for an address. At most
    `quota` messages a minute are taken, and `device_quota` for one device; all answers but 429
    count.
    """

    def __init__(
        self,
        project="demo-project",
        *,
        most_streams=100,
        latency_s=0.0,
        quota=None,
        device_quota=None,
        log=None,
        now=time.monotonic,
    ):
        self.project = project
        self.tokens = GoogleTokenServer(project)
        self.server = Http2Server(self.react, most_streams)
        self.latency_s = latency_s
        self.quota, self.device_quota = quota, device_quota
        self.answers, self.at = [], {}
        self.delivered = []
        self._log = log
        self._now = now
        self._minute, self._sent = 0, Counter()

    @asynccontextmanager
    async def running(self, port=0):
        async with self.tokens.running(), self.server.running(port):
            self.url = self.server.url
            yield self

    def react(self, request):
        answer = self._answer(request)
        return replace(answer, after_s=answer.after_s or self.latency_s)

    def _answer(self, request):
        path = _SEND.fullmatch(request.path)
        if request.method != "POST" or path is None:
            return Answer(404, b"<html>Not Found</html>", {"content-type": "text/html"})
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens.good:
            return fcm_error(401, message="Request had invalid authentication credentials.")
        if path[1] != self.project:
            return fcm_error(403, error_info("CONSUMER_INVALID"))
        message, refusal = self._read(request)
        if refusal := refusal or self._over_quota(message):
            return refusal
        target = next(message[name] for name in TARGETS if name in message)
        if self.answers:
            return self.answers.pop(0)
        return self.at[target] if target in self.at else self._deliver(message)

    def _read(self, request):
        """The message of a request, and what it is refused with, if it is."""
        try:
            content = json.loads(request.body)
        except ValueError:
            return {}, fcm_error(400, bad_field(""), message="Invalid JSON payload received.")
        message = content.get("message")
        if "application/json" not in request.headers.get("content-type", ""):
            return {}, fcm_error(400, bad_field(""), message="Not JSON")
        if not isinstance(message, dict) or content.keys() - {"message", "validate_only"}:
            return {}, fcm_error(400, bad_field(""), message="Invalid JSON payload received.")
        self.only_validates = content.get("validate_only", False)
        return message, refusal_of(message)

    def _over_quota(self, message):
        minute = self._now() // 60
        if minute != self._minute:
            self._minute, self._sent = minute, Counter()
        device = message.get("token") or message.get("fid")
        if self.quota is not None and self._sent[None] >= self.quota:
            return PROJECT_RATE
        if device and self.device_quota is not None and self._sent[device] >= self.device_quota:
            return DEVICE_RATE
        self._sent[None] += 1
        self._sent[device] += 1
        return None

    def _deliver(self, message):
        if not self.only_validates:
            self.delivered.append(message)
            if self._log is not None:
                os.write(self._log, arrival_line(message.get("data", {})))
        name = f"projects/{self.project}/messages/0:{len(self.delivered)}"
        return Answer(
            200, json.dumps({"name": name}).encode(), {"content-type": "application/json"}
        )


def refusal_of(message):
    """Return the refusal of a message that FCM does not take, None if it does."""
    if unknown := message.keys() - FIELDS:
        words = f"Invalid JSON payload received. Unknown name \"{min(unknown)}\" at 'message'"
        return fcm_error(400, bad_field("message", words), message=words)
    targets = [name for name in TARGETS if message.get(name)]
    if len(targets) != 1:
        return invalid_field("message")
    if targets[0] in ("token", "fid") and not _ADDRESS.fullmatch(message[targets[0]]):
        return fcm_error(400, fcm_code("INVALID_ARGUMENT"), message=INVALID_TOKEN)
    return _refused_content(message) or _refused_size(message, targets[0])


def _refused_content(message):
    for name in ("data", "notification", "android"):
        if not isinstance(message.get(name, {}), dict):
            return fcm_error(400, bad_field(f"message.{name}"))
    for place, (key, value) in enumerate(message.get("data", {}).items()):
        if not isinstance(value, str):
            return fcm_error(400, bad_field(f"message.data[{place}].value"))
        if key in ("from", "gcm") or key.startswith("google"):
            return invalid_field("message.data")
    android = message.get("android", {})
    if not _TTL.fullmatch(android.get("ttl", "0s")):
        return invalid_field("message.android.ttl")
    if android.get("priority", "NORMAL") not in ("NORMAL", "HIGH"):
        return invalid_field("message.android.priority")
    return None


def _refused_size(message, target):
    parts = (message.get("data", {}), message.get("notification", {}))
    size = sum(len(f"{key}{value}".encode()) for part in parts for key, value in part.items())
    if size <= (LARGEST_TOPIC_BYTES if target in ("topic", "condition") else LARGEST_BYTES):
        return None
    return fcm_error(400, fcm_code("INVALID_ARGUMENT"), message="Android message is too big")


async def _serve(options):
    log = None
    if options.log:
        log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    emulator = FcmEmulator(latency_s=options.latency_ms / 1000, quota=options.quota, log=log)
    async with emulator.running(options.port):
        if options.keys:
            options.keys.mkdir(parents=True, exist_ok=True)
            file = os.open(options.keys / "service-account.json", os.O_WRONLY | os.O_CREAT, 0o600)
            os.ftruncate(file, 0)
            os.write(file, json.dumps(emulator.tokens.service_account(), indent=1).encode())
            os.close(file)
        print(emulator.url, flush=True)
        await emulator.server.serve()


def main():
    parser = argparse.ArgumentParser(description="FCM's HTTP v1 API on this machine")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--keys", type=Path, help="folder for service-account.json")
    parser.add_argument("--log", help="file that gets a line a delivered push")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--quota", type=int, help="messages a minute")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
