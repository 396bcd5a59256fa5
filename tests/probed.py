"""A `pushlane` process with the probes that Kubernetes would ask it."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable

from tests.integration.marked_pushes import free_port
from tests.processes import DEADLINE_S, Pushlane, Running, until

OK = (200, "ok\n")
READY = (200, "ready\n")


class Probed:
    """A running command, with the port that its probes ask."""

    def __init__(self, pushlane: Pushlane, *words: str) -> None:
        self._port = free_port()
        self.process: Running = pushlane.start(*words, "--metrics-port", str(self._port))

    def get(self, path: str) -> tuple[int, str]:
        """The status and the text of a path; (0, "") while nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def until(self, path: str, good: Callable[[tuple[int, str]], bool]) -> tuple[int, str]:
        """Ask again and again, and have it live all the while; what it said at last."""
        found = (0, "")

        def is_good() -> bool:
            nonlocal found
            if good(found := self.get(path)):
                return True
            assert not self.process.has_ended, self.process.text
            assert self.get("/livez") in (OK, (0, "")), self.process.text
            return False

        until(is_good)
        return found

    def until_ready(self) -> None:
        self.until("/readyz", lambda found: found == READY)

    def until_missing(self, words: str) -> None:
        self.until(
            "/readyz", lambda found: found[0] == 503 and re.search(words, found[1]) is not None
        )
