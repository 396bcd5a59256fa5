"""A Prometheus of a test's own, and the promtool that comes with it.

Absent, a test that asks for one is skipped; in CI (`CI` is set) it fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from dev.stack.services import free_port
from tests.processes import until

_TIMEOUT_S = 10.0


class Promtool:
    """Checks rules, and tests them."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, *arguments: str | Path) -> str:
        """Return what it says; fails the test when it finds fault."""
        command = [self._program, *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


class OwnPrometheus:
    """Scrapes each second, on loopback alone; it starts with no data and leaves none."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, targets: Sequence[str], rules: Path) -> None:
        """Scrape these addresses, as one job. Returns when all have been scraped."""
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "pushlane", "static_configs": [{"targets": targets}]}],
        }
        path = self._folder / "prometheus.yml"
        path.write_text(json.dumps(config))
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={path}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers)

    def query(self, expression: str) -> list[Any]:
        """Return the series of a result; fails the test for one that cannot be answered."""
        try:
            return self._result(expression)
        except HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error

    def names(self) -> set[str]:
        """Return the name of each series that it has."""
        return set(self._get("label/__name__/values", {})["data"])

    def rules(self) -> list[dict[str, Any]]:
        """Return each rule, with how its evaluation went."""
        groups = self._get("rules", {})["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        said = (self._folder / "prometheus.log").read_text
        assert self._process.poll() is None, said()
        with suppress(URLError, ConnectionError):
            return bool(self._result("up")) and not self._result("up == 0")
        return False

    def _result(self, expression: str) -> list[Any]:
        found: list[Any] = self._get("query", {"query": expression})["data"]["result"]
        return found

    def _get(self, what: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urlencode(parameters)}"
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)


@pytest.fixture
def promtool() -> Promtool:
    return Promtool(_program("promtool"))


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[OwnPrometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    own = OwnPrometheus(_program("prometheus"), folder)
    yield own
    own.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    if found := shutil.which(name):
        return found
    reason = f"no {name} here: install Debian's package prometheus"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
