"""What holds for the product as a whole: a core that is read in an afternoon, true documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pushlane.version import VERSION
from scripts.monitoring.alerts import alerts
from scripts.reference import DOCS, PAGES
from scripts.shape import (
    ROOT,
    Module,
    classes,
    cycle,
    function_lengths,
    modules,
    on_a_pushs_way,
)

MOST_MODULES_ON_THE_WAY = 20
MOST_CLASSES_ON_THE_WAY = 80
MOST_LINES_OF_CORE = 4_780
LONGEST_FUNCTION = 54
MOST_GIVEN_TO_A_CONSTRUCTOR = 7


@pytest.fixture(scope="module")
def product() -> list[Module]:
    return modules()


def test_no_modules_import_each_other_in_a_circle(product: list[Module]) -> None:
    """Not for types either."""
    assert cycle(product) == []


def test_who_follows_a_push_meets_few_modules_and_classes(product: list[Module]) -> None:
    way = on_a_pushs_way(product)

    assert len(way) <= MOST_MODULES_ON_THE_WAY
    assert sum(map(len, classes(way).values())) <= MOST_CLASSES_ON_THE_WAY
    core = [module for module in product if module.name.partition(".")[0] == "core"]
    assert sum(module.lines for module in core) <= MOST_LINES_OF_CORE
    assert {module.name for module in way} <= {"wire", *(module.name for module in core)}


def test_what_core_makes_takes_few_things(product: list[Module]) -> None:
    """A part that needs more than this has more than one subject."""
    given = {
        f"{module.name} {cls.name}": len(node.args.args) - 1 + len(node.args.kwonlyargs)
        for module in product
        if module.name.startswith("core.")
        for cls in ast.walk(module.tree)
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    }
    assert {
        name: count for name, count in given.items() if count > MOST_GIVEN_TO_A_CONSTRUCTOR
    } == {}


def test_functions_are_short(product: list[Module]) -> None:
    lengths = function_lengths(product)
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_a_folder_has_one_subject() -> None:
    """What it is said to be is a sentence, and no list."""
    said = {
        str(path.parent.relative_to(ROOT)): (ast.get_docstring(ast.parse(path.read_text())) or "")
        for path in sorted((ROOT / "pushlane").rglob("__init__.py"))
        if path.parent != ROOT / "pushlane"
    }
    assert {folder: text for folder, text in said.items() if not text} == {}
    subjects = {folder: re.split(r"[.:;,](?:\s|$)", text)[0] for folder, text in said.items()}
    assert {folder: text for folder, text in subjects.items() if " and " in text} == {}


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
