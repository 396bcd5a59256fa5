"""What users read of the code, in plain words: messages, help, logs, metrics and the console."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pushlane.cli.main import _COMMANDS, commands_of
from scripts.words import FORBIDDEN

ROOT = Path(__file__).parents[2]
CODE = sorted((ROOT / "pushlane").rglob("*.py"))
TEMPLATES = sorted((ROOT / "pushlane" / "console" / "templates").glob("*.html"))

NAMES = (
    r"--seal\b|seal=True",  # an option, and the client's
    r"BookKeeper's journal",  # which is called so
)
"""Names that have one of the words, and are not ours to change."""
_TAGS = re.compile(r"{[{%#].*?[}%#]}|<[^>]*>", re.DOTALL)
SQL = re.compile(r"^\s*(?:SELECT|INSERT|DELETE|UPDATE|CREATE|PRAGMA|WITH)\b", re.MULTILINE)


class Text(NamedTuple):
    line: int
    text: str


def texts(source: str) -> Iterator[Text]:
    """Yield the texts of some words in this code: no docstrings, names or SQL."""
    tree = ast.parse(source)
    in_others = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    in_others |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in in_others:
            continue
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            text = "".join(map(str, parts))
        if " " in text and not SQL.search(text):
            yield Text(node.lineno, text)  # type: ignore[attr-defined]


def forbidden_in(text: str) -> Iterator[str]:
    """Yield what should be said otherwise, with the advice; inline code keeps its names."""
    plain = re.sub("|".join((r"`[^`]*`", *NAMES)), "CODE", text)
    for pattern, advice in FORBIDDEN.items():
        for found in re.finditer(pattern, plain):
            yield f"{found[0].strip()!r} in {text[:80]!r}: {advice}"


def test_what_users_read_has_no_internal_words() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{text.line}: {one}"
        for path in CODE
        for text in texts(path.read_text())
        for one in forbidden_in(text.text)
    ]

    assert wrong == []


def test_the_console_has_no_internal_words() -> None:
    shown = {path.name: _TAGS.sub(" ", path.read_text()) for path in TEMPLATES}

    wrong = [
        f"{name}: {one}"
        for name, text in shown.items()
        for sentence in re.split(r"\n|(?<=[.:?!]) ", text)
        for one in forbidden_in(sentence.strip())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('raise BadInput(f"task {task} is sealed")', True),
        ('log.warning("without the ledger: %s", error)', True),
        ('print("what is entitled")', True),
        ('print("task is closed")', False),
        ('def f():\n    """It is sealed."""', False),
        ('action = "sealed"', False),
        ('print("run `spool send --seal`")', False),
        ('sql = "SELECT * FROM ledger"', False),
    ],
)
def test_only_texts_are_held_to_it(code: str, wrong: bool) -> None:
    assert any(True for text in texts(code) for _ in forbidden_in(text.text)) == wrong


@pytest.mark.parametrize("module", _COMMANDS)
def test_the_help_of_commands_has_no_internal_words(module: str) -> None:
    named = commands_of(module)
    inner = {
        **named,
        **{n: c for one in named.values() for n, c in getattr(one, "commands", {}).items()},
    }

    wrong = [
        f"{name}: {one}"
        for name, command in inner.items()
        for sentence in re.split(r"(?<=[.:])\s", command.help or "")
        for one in forbidden_in(sentence)
    ]
    assert wrong == []
