"""Somebody's server for batches: it answers with a result for each message.

As a process: `python -m tests.emulators.http_batch --keys DIR`, as that of the webhook.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.emulators.http1_server import note, options, served
from tests.emulators.http2_server import Answer, Reaction, Request
from tests.emulators.webhook import with_keys

Result = dict[str, Any]


def delivered(message: Result) -> Result:
    return {"push_id": message["push_id"], "status": "delivered"}


def answering(result_of: Callable[[Result], Result | None] = delivered) -> Callable[..., Answer]:
    """Answer with what this gives for each message; None leaves a message without a result."""

    def answer(request: Request) -> Answer:
        messages = json.loads(request.body)["messages"]
        results = [result for one in messages if (result := result_of(one)) is not None]
        return Answer(200, json.dumps({"results": results}).encode())

    return answer


def main() -> None:
    parser = options("A server that takes batches.")
    parser.add_argument("--keys", type=Path, help="writes the credentials that it wants")
    parser.add_argument("--status", default="delivered", help="of every result")
    given = parser.parse_args()

    def result_of(message: Result) -> Result:
        if given.status == "delivered":
            note(given.log, message["push_id"])
        return {"push_id": message["push_id"], "status": given.status}

    def answer(request: Request) -> Reaction:
        reaction = answering(result_of)(request)
        reaction.after_s = given.latency_ms / 1000
        return reaction

    served(with_keys(given.keys, answer), given.port, "/batch")


if __name__ == "__main__":
    main()
