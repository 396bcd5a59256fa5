"""`serve` as real processes: a task whose lines are cut by kills comes to its receiver once."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any

from tests.processes import Pushlane, Received, Running, each_once, until

TOTAL = 20_000
_A_PART = 500


class Api:
    """One `serve` process, asked with a token."""

    def __init__(self, process: Running, token: str) -> None:
        self.process = process
        until(lambda: "serving at" in process.text or process.has_ended)
        found = re.search(r"serving at http://([\d.]+:\d+)", process.text)
        assert found, process.text
        self._at = found[1]
        self._headers = {"Authorization": f"Bearer {token}"}

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """What is answered, which is no refusal."""
        connection = HTTPConnection(self._at, timeout=60)
        connection.request(method, path, json.dumps(body) if body else None, self._headers)
        answer = connection.getresponse()
        shown = json.loads(answer.read())
        assert answer.status in (200, 201), shown
        return shown

    def sending(self, task: str, first: int, last: int) -> Iterator[HTTPConnection]:
        """Send these lines part by part; yield after each, for whoever wants to cut it there."""
        connection = HTTPConnection(self._at, timeout=60)
        connection.putrequest("POST", f"/v1/tasks/{task}/pushes?from={first}")
        for name, value in self._headers.items():
            connection.putheader(name, value)
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        for begin in range(first, last + 1, _A_PART):
            lines = "".join(
                f'{{"recipient": "device-{n}", "title": "Hi"}}\n'
                for n in range(begin, min(begin + _A_PART, last + 1))
            ).encode()
            connection.send(b"%x\r\n%s\r\n" % (len(lines), lines))
            yield connection
        connection.send(b"0\r\n\r\n")
        yield connection

    def send(self, task: str, first: int, last: int) -> int:
        """Send these lines; return the last that is safe."""
        *_, connection = self.sending(task, first, last)
        answer = connection.getresponse()
        shown = json.loads(answer.read())
        assert answer.status == 200, shown
        return int(shown["safe_line"])

    def send_until(self, task: str, first: int, parts: int) -> HTTPConnection:
        """Send so many parts of these lines, and leave it there."""
        sending = self.sending(task, first, TOTAL)
        for _ in range(parts):
            connection = next(sending)
        return connection


def serve(pushlane: Pushlane, token: str) -> Api:
    return Api(pushlane.start("serve", "--bind", "127.0.0.1:0"), token)


def is_received(api: Api, task: str) -> bool:
    """Whether another process receives lines of the task, as a question is refused then."""
    try:
        return bool(api("GET", f"/v1/tasks/{task}/pushes")["safe_line"])
    except AssertionError:
        return True


def safe(api: Api, task: str) -> int:
    """Up to which line all is safe, once whoever was cut off has let go of the task."""
    found: list[int] = []

    def is_free() -> bool:
        try:
            found.append(api("GET", f"/v1/tasks/{task}/pushes")["safe_line"])
        except AssertionError:  # a 409
            return False
        return True

    until(is_free)
    return found[-1]


def test_lines_that_are_cut_off_three_times_arrive_once(
    pushlane: Pushlane, receiver: Received
) -> None:
    token = pushlane("access", "create", "shop", "--role", "submitter", "--app", "shop")
    one, two = serve(pushlane, token), serve(pushlane, token)
    made = one("POST", "/v1/tasks", {"level": "high", "app": "shop", "key": "sale"})
    task = made["id"]

    sender = one.send_until(task, 1, parts=12)
    until(lambda: is_received(two, task))
    sender.close()  # it goes away
    first = safe(two, task)
    two.send_until(task, first + 1, parts=12)
    two.process.kill()
    second = safe(one, task)
    one.send_until(task, second + 1, parts=3)
    one.process.stop()
    three = serve(pushlane, token)
    third = safe(three, task)
    last = three.send(task, third + 1, TOTAL)
    three("POST", f"/v1/tasks/{task}/seal", {"total": TOTAL})

    assert 0 < first <= second <= third < last == TOTAL
    assert pushlane.task(task)["state"] == "running"
    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once({task: TOTAL})
    assert three("GET", f"/v1/tasks/{task}")["delivered"] == TOTAL
    assert three.process.stop() == 0


def test_pushes_that_were_answered_arrive_once_though_a_process_is_killed(
    pushlane: Pushlane, receiver: Received
) -> None:
    token = pushlane("access", "create", "shop", "--role", "submitter", "--app", "shop")
    pushlane("streams", "put", "orders", "--level", "high", "--app", "shop")
    one, two = serve(pushlane, token), serve(pushlane, token)
    answered: dict[str, str] = {}
    cut: list[str] = []
    by_process: Counter[int] = Counter()
    some = threading.Event()

    def send(api: Api, first: int, last: int) -> None:
        for number in range(first, last):
            key = f"order-{number}"
            try:
                shown = api("PUT", f"/v1/streams/orders/pushes/{key}", {"recipient": key})
            except (OSError, HTTPException):
                cut.append(key)
                return
            answered[key] = shown["id"]
            by_process[api.process.pid] += 1
            if len(by_process) == 2 and len(answered) >= 100:
                some.set()

    senders = [
        threading.Thread(target=send, args=(api, first, first + 2_000))
        for api, first in ((one, 0), (one, 10_000), (two, 20_000), (two, 30_000))
    ]
    for sender in senders:
        sender.start()
    assert some.wait(60)
    one.process.kill()
    for sender in senders:
        sender.join()
    for key in cut:  # who got no answer sends it again, elsewhere
        two("PUT", f"/v1/streams/orders/pushes/{key}", {"recipient": key})
    assert two.process.stop() == 0
    pushlane.drain(receiver.sink)

    arrived = {f"{task}-{seq}": times for (task, seq), times in receiver.pushes.items()}
    assert set(arrived.values()) == {1}
    assert {*answered.values()} <= arrived.keys()
    assert len(arrived) == len(answered) + len(cut)
    tasks = pushlane.json("tasks", "--all")
    assert [task["state"] for task in tasks] == ["done", "done"]


def test_events_come_until_the_process_stops(pushlane: Pushlane) -> None:
    admin = pushlane("access", "create", "ops", "--role", "admin")
    one = serve(pushlane, admin)
    stream = HTTPConnection(one._at, timeout=60)
    stream.request("GET", "/v1/watch/tasks", headers=one._headers)
    answer = stream.getresponse()

    def event() -> dict[str, str]:
        """The fields of the next event."""
        fields = {}
        while (line := answer.readline().decode().rstrip("\n")) or not fields:
            name, _, value = line.partition(": ")
            fields |= {name: value} if name else {}
        return fields if "event" in fields else event()

    first = event()
    made = one("POST", "/v1/tasks", {"level": "high", "key": "sale"})
    second = event()
    code = one.process.stop()

    assert answer.headers["X-Accel-Buffering"] == "no"
    assert (first["event"], first["data"]) == ("snapshot", "[]")
    assert (second["event"], json.loads(second["data"])["id"]) == ("task", made["id"])
    assert (answer.read(), code) == (b"", 0)
