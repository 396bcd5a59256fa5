"""Clients that generators make of the OpenAPI document do what they are to do, on a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from pushlane.core.errors import UserError
from pushlane.door.openapi import document
from scripts import go_modules
from tests.chart.tools import program
from tests.processes import Pushlane, until

_HERE = Path(__file__).parent
embedded = pytest.mark.parametrize("pushlane", ["embedded"], indirect=True)
_RUNTIME = "github.com/oapi-codegen/runtime@v1.9.0"


def absent(why: str) -> None:
    """Skip, or fail in CI, as what is needed is not here."""
    pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the program, with the document beside it."""
    shutil.copytree(_HERE / request.param, tmp_path / "client")
    (tmp_path / "client/openapi.json").write_bytes(msgspec.json.encode(document()))
    return tmp_path / "client"


@embedded
@pytest.mark.parametrize("folder", ["go"], indirect=True)
def test_a_client_in_go(pushlane: Pushlane, folder: Path) -> None:
    generator = program("oapi-codegen")
    words = ("-generate", "types,client", "-package", "main", "-o", "api.go", "openapi.json")
    try:
        path = f"{Path(go_modules.find_go()).parent}:{os.environ['PATH']}"
        subprocess.run(
            [generator, *words], cwd=folder, env={**os.environ, "PATH": path}, check=True
        )
        go_modules.run_go("mod", "init", "example/client", folder=folder)
        go_modules.run_go("get", _RUNTIME, folder=folder)
    except UserError as error:
        absent(str(error))
    go_modules.run_go("build", "-o", "client", ".", folder=folder)

    does_all(pushlane, folder / "client")


@embedded
@pytest.mark.parametrize("folder", ["typescript"], indirect=True)
def test_a_client_in_typescript(pushlane: Pushlane, folder: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, capture_output=True, text=True)

    if shutil.which("npm") is None:
        absent("there is no npm, which brings the generator")
    if (installed := run("npm", "install", "--no-audit", "--no-fund")).returncode:
        absent(f"npm does not install the generator: {installed.stderr[-500:]}")
    options = ("--default-non-nullable", "false", "-o", "api.d.ts")
    generated = run("npx", "openapi-typescript", "openapi.json", *options)
    assert generated.returncode == 0, generated.stderr
    compiled = run(
        "npx", "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "main.ts"
    )
    assert compiled.returncode == 0, compiled.stdout

    does_all(pushlane, "node", folder / "main.js")


def does_all(pushlane: Pushlane, *command: str | Path) -> None:
    """Run it beside a server; it says what it was answered."""
    token = pushlane("access", "create", "client", "--role", "operator")
    server = pushlane.start("serve", "--bind", "127.0.0.1:0")
    until(lambda: "serving at" in server.text or server.has_ended)
    found = re.search(r"serving at (http://[\d.]+:\d+)", server.text)
    assert found, server.text

    ran = subprocess.run([*command, found[1], token], capture_output=True, text=True, timeout=60)

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"safe": 3, "total": 3, "quota": 5, "refused": 404}
    assert pushlane.task("shop/sale")["total"] == 3
