"""What holds for the product as a whole: file names that mean one thing, true documents."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from pushlane.version import VERSION
from scripts.monitoring.alerts import alerts
from scripts.reference import DOCS, PAGES
from scripts.shape import ROOT, Module, modules

# One word of the field in parts that have nothing to do with each other, so that nobody takes one
# for the other; the folder says of what it is. A new name does not belong here.
FILES_THAT_SHARE_A_NAME = {
    "checks.py": "what a check is; those of each service",
    "client.py": "the Redis client; the public Client",
    "documents.py": "the port of documents; an adapter of it",
    "files.py": "of each log or demo that keeps any",
    "metrics.py": "how a metric is defined; those of a dispatcher",
    "ports.py": "on a push's way; beside it",
    "presence.py": "what a process says of itself; the saying of it",
    "rebuild.py": "of Redis from the journal; of the store of receipts from its log",
    "recipients.py": "what is known of them; how an adapter keeps it",
    "replay.py": "an adapter's part; a task's pushes again",
    "request.py": "of a submit; of a fan-out",
    "schema.py": "of the embedded store; of the store of receipts",
    "tasks.py": "rows of the embedded store; tasks that a dispatcher knows",
}


@pytest.fixture(scope="module")
def product() -> list[Module]:
    return modules()


def test_a_file_name_means_one_thing(product: list[Module]) -> None:
    """Adapters name their files after the port; a command's file after the command; each part may
    have errors.
    """
    places: dict[str, set[str]] = defaultdict(set)
    for module in product:
        path = Path(module.path)
        part = path.parts[1]
        folder = part if part == "backends" else str(path.parent)
        if path.name not in ("__init__.py", "errors.py") and folder != "pushlane/cli":
            places[path.name].add(folder)
    shared = {name: folders for name, folders in places.items() if len(folders) > 1}
    assert {n: where for n, where in shared.items() if n not in FILES_THAT_SHARE_A_NAME} == {}


@pytest.mark.parametrize("page", PAGES)
def test_references_say_what_the_code_does(page: str) -> None:
    assert (DOCS / page).read_text() == PAGES[page](), "run: python -m scripts.reference"


@pytest.mark.parametrize("folder", [".", "docs", "examples"])
def test_links_between_documents_lead_somewhere(folder: str) -> None:
    pages = sorted((ROOT / folder).glob("*.md"))
    broken = [
        f"{page.name}: {link}" for page in pages for link in _links(page) if not _leads(page, link)
    ]
    assert broken == []


def test_each_alert_leads_to_its_place_in_the_runbook() -> None:
    anchors = _headings(DOCS / "operations.md")

    assert {alert.name for alert in alerts() if alert.runbook not in anchors} == set()
    told = re.findall(r"^\*(Pushlane\w+):", (DOCS / "operations.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(alert.name for alert in alerts())


def test_the_changelog_has_the_version() -> None:
    assert f"\n## {VERSION} - " in (ROOT / "CHANGELOG.md").read_text()


def test_pre_commit_runs_what_make_check_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    pytest_command = re.findall(r"^PYTEST := (.+)$", makefile, re.MULTILINE)[0]
    recipe = makefile.split("\ncheck: ")[1].split("\n\n")[0].replace("$(PYTEST)", pytest_command)
    commands = recipe.replace("$(BIN)", ".venv/bin").replace(" $(ARGS)", "").split("\n\t")[1:]
    hooks = re.findall(r"entry: (.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert hooks == [command.removesuffix(" .") for command in commands]


def _links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    return [link for link in found if not link.startswith("http")]


def _leads(page: Path, link: str) -> bool:
    path, _, place = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not place or place in _headings(target))


def _headings(page: Path) -> set[str]:
    """The anchors that a forge makes of a page's headings."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


ENDS_THE_PROCESS = {
    "os._exit",
    "os.abort",
    "os.kill",
    "os.killpg",
    "sys.exit",
    "signal.signal",
    "signal.raise_signal",
    "signal.set_wakeup_fd",
}


def test_only_commands_end_their_process_or_take_its_signals() -> None:
    """What users import into a process of theirs leaves it, and its signals, alone."""
    commands = (ROOT / "pushlane/cli", ROOT / "pushlane/pipeline")
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno} {_called(node)}"
        for path in (ROOT / "pushlane").rglob("*.py")
        if not any(path.is_relative_to(folder) for folder in commands)
        for node in ast.walk(ast.parse(path.read_text()))
        if _called(node) in ENDS_THE_PROCESS or _is_exit(node)
    }
    assert found == set()


def _called(node: ast.AST) -> str:
    """Return a dotted name that is called or passed on, like `os._exit`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _is_exit(node: ast.AST) -> bool:
    """Tell whether this raises SystemExit, or imports what ends a process by its bare name."""
    if isinstance(node, ast.Raise):
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(error, ast.Name) and error.id in ("SystemExit", "KeyboardInterrupt")
    if isinstance(node, ast.ImportFrom):
        return any(f"{node.module}.{one.name}" in ENDS_THE_PROCESS for one in node.names)
    return isinstance(node, ast.Name) and node.id in ("exit", "quit")
