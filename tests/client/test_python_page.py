"""Each block of Python in docs/python.md runs, and does what the page says."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pushlane import Client, Level, State, SubmitRequest
from scripts.reference import DOCS, PAGES

README = DOCS.parent / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SALE = "recipient,name,percent\ndevice-7,Ada,20\ndevice-8,Max,30\n"


def blocks(page: Path) -> dict[str, str]:
    """The only block of Python of each section, by its heading."""
    found: dict[str, str] = {}
    for section in re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if code := _BLOCK.findall(text):
            found[heading] = code[0]
    return found


PAGE = blocks(DOCS / "python.md")


@pytest.fixture
def printed() -> list[str]:
    return []


@pytest.fixture
def run(
    own_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    printed: list[str],
) -> Callable[[str], dict[str, Any]]:
    """Run a block in an empty folder, on a store of its own; return its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PUSHLANE_DATA_DIR", str(tmp_path / "store"))
    (tmp_path / "sale.csv").write_text(_SALE)

    def run_block(code: str) -> dict[str, Any]:
        def note(*values: Any) -> None:
            printed.append(" ".join(map(str, values)))

        names: dict[str, Any] = {"__name__": "__main__", "print": note}
        exec(compile(code, "docs/python.md", "exec"), names)
        return names

    return run_block


def tasks() -> list[tuple[str, State]]:
    with Client.sync() as client:
        return [(task.name, task.state) for task in client.tasks()]


def test_every_block_is_run_here() -> None:
    source = Path(__file__).read_text()

    assert [heading for heading in PAGE if f'PAGE["{heading}"]' not in source] == []
    assert len(PAGE) == len(_BLOCK.findall((DOCS / "python.md").read_text()))


def test_the_first_one(run, printed) -> None:
    run(PAGE["From Python"])

    assert sorted(printed) == ["to device-7: Hello Ada", "to device-8: Hello Max"]


def test_the_one_of_the_readme(run, printed) -> None:
    run(blocks(README)["Pushing from your own code"])

    assert printed == ["to device-7: Paid"]
    assert tasks() == [("orders", State.DONE)]


def test_submit(run, printed) -> None:
    run(PAGE["Submit"])

    assert re.fullmatch(r"task \w+: 2 pushes", printed[0])
    assert tasks() == [("sale", State.RUNNING)]


def test_push_one_by_one(run) -> None:
    run(PAGE["Push one by one"])

    with Client.sync() as client:
        [task] = client.tasks()
        assert (task.name, task.level, task.total) == ("orders", Level.HIGH, 1)


def test_follow(run, printed) -> None:
    run(PAGE["Follow"])

    assert printed[1] == "done: 9 delivered, 1 dead"
    assert re.fullmatch(r"\w+-9 no such number", printed[2])
    assert len(tasks()) == 2


def test_steer(run) -> None:
    run(PAGE["Steer"])

    with Client.sync() as client:
        [task] = client.tasks()
        assert (task.state, task.level, task.quota) == (State.CANCELLED, Level.HIGH, 5)
        [shown] = client.limits()
        assert (shown.limit.rate_per_s, shown.limit.in_flight) == (100.0, 20)


class FastAPI:
    """What the page uses of it."""

    def __init__(self, lifespan: Any) -> None:
        self.lifespan = lifespan
        self.state = SimpleNamespace()
        self.routes: dict[str, Any] = {}

    def post(self, path: str) -> Callable[[Any], Any]:
        return lambda function: self.routes.setdefault(path, function)


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_fastapi(run, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "fastapi", FastAPI=FastAPI)
    names = run(PAGE["FastAPI"])
    app = names["app"]

    async def serve() -> None:
        sent: asyncio.Queue[str] = asyncio.Queue()
        names["print"] = sent.put_nowait
        async with asyncio.timeout(60), app.lifespan(app):
            answer = await app.routes["/orders/{number}/paid"](7)
            assert answer["push"].endswith("-1")
            assert await sent.get() == "to device-7: Paid"

    asyncio.run(serve())
    assert tasks()[0][0] == "orders"


def test_django(run, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "django")
    stand_in(monkeypatch, "django.http", HttpRequest=object, JsonResponse=dict)
    names = run(PAGE["Django and gunicorn"])

    answer = names["paid"](None, 7)
    assert names["producer"]().flush(60)
    assert list(names["tasks"](None).values()) == [State.RUNNING]
    names["client"]().__exit__()
    names["producer"]().close()

    assert answer["push"].endswith("-1")
    assert tasks() == [("orders", State.RUNNING)]


def test_a_script(run, tmp_path: Path) -> None:
    with Client.sync() as client:
        rows = [{"recipient": "device-7"}]
        client.submit(SubmitRequest(source=rows, level=Level.HIGH, title="Hi"))
    process = subprocess.Popen(
        [sys.executable, "-uc", PAGE["A script"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "to device-7: Hi\n"

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    assert [state for _, state in tasks()] == [State.DONE]


def test_the_tests(run) -> None:
    names = run(PAGE["Test"])
    found = [name for name in names if name.startswith("test_")]

    assert len(found) == 2
    for name in found:
        names[name]()


def test_the_reference_has_all_operations() -> None:
    page = PAGES["python-reference.md"]()

    assert "#### Client.wait\n" in page
    assert "#### Dispatcher.open\n" in page
