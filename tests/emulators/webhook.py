"""Somebody's webhook: it checks the authorization and the Standard Webhooks signature.

As a process: `python -m tests.emulators.webhook --keys DIR` writes to that folder what a sink needs
(the files `authorization` and `secrets`) and refuses what comes without.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

from tests.emulators.http1_server import note, options, served
from tests.emulators.http2_server import Answer, Reaction, Request


def new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def is_signed(request: Request, secret: str) -> bool:
    """Tell whether the reference library takes the request for signed with this key, and new."""
    try:
        Webhook(secret).verify(request.body, request.headers)
    except WebhookVerificationError:
        return False
    return True


class Receiver:
    """Answers 401 to what is not authorized or not signed, else what `answer` says."""

    def __init__(
        self,
        authorization: str = "",
        secret: str = "",
        answer: Callable[[Request], Reaction] = lambda request: Answer(),
    ) -> None:
        self.authorization = authorization
        self.secret = secret
        self.answer = answer
        self.received: list[Request] = []

    def __call__(self, request: Request) -> Reaction:
        if self.authorization and request.headers.get("authorization") != self.authorization:
            return Answer(401)
        if self.secret and not is_signed(request, self.secret):
            return Answer(401)
        self.received.append(request)
        return self.answer(request)


def with_keys(folder: Path | None, answer: Callable[[Request], Reaction]) -> Receiver:
    """Return a receiver that wants what it has written to this folder, or nothing without one."""
    if folder is None:
        return Receiver(answer=answer)
    folder.mkdir(parents=True, exist_ok=True)
    receiver = Receiver(f"Bearer {secrets.token_hex(16)}", new_secret(), answer)
    for name, value in (("authorization", receiver.authorization), ("secrets", receiver.secret)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(value + "\n")
    return receiver


def main() -> None:
    parser = options("A webhook.")
    parser.add_argument("--keys", type=Path, help="writes the credentials that it wants")
    parser.add_argument("--status", type=int, default=200)
    given = parser.parse_args()

    def answer(request: Request) -> Reaction:
        if given.status < 300:
            note(given.log, str(json.loads(request.body).get("push_id", "-")))
        return Answer(given.status, after_s=given.latency_ms / 1000)

    served(with_keys(given.keys, answer), given.port, "/push")


if __name__ == "__main__":
    main()
