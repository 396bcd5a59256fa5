"""Nothing is cut from a narrow terminal without a sign."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from pushlane.cli.render import Column, print_table

COLUMNS = (
    Column[str]("TASK", lambda one: one),
    Column[str]("QUOTA", lambda _: "1" * 12, spare=1),
    Column[str]("TOTAL", lambda _: "2" * 12, spare=2),
    Column[str]("REASON", lambda _: "r" * 60, elastic=True, least=20),
)


def shown(monkeypatch, capsys, width: int, *, wide: bool = False) -> tuple[list[str], str]:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((width, 24)))
    print_table(COLUMNS, ["t1"], wide=wide, more="--wide shows all")
    told = capsys.readouterr()
    return told.out.splitlines(), told.err


@pytest.mark.parametrize(
    ("width", "hidden"),
    [(52, ""), (45, "hidden: QUOTA; "), (30, "hidden: QUOTA, TOTAL; ")],
)
def test_the_least_important_columns_go_first_and_are_named(
    monkeypatch, capsys, width: int, hidden: str
) -> None:
    rows, told = shown(monkeypatch, capsys, width)

    assert max(map(len, rows)) <= width
    assert rows[1].endswith("…")
    assert told == (f"{hidden}--wide shows all\n" if hidden else "")


def test_a_column_that_says_nothing_goes_before_all_others(monkeypatch, capsys) -> None:
    silent = Column[str]("ENDS", lambda _: "-", spare=9)
    monkeypatch.setitem(globals(), "COLUMNS", (*COLUMNS[:3], silent, COLUMNS[3]))

    _, told = shown(monkeypatch, capsys, 52)

    assert told == "hidden: ENDS; --wide shows all\n"


def test_wide_shows_all_uncut(monkeypatch, capsys) -> None:
    rows, told = shown(monkeypatch, capsys, 30, wide=True)

    assert rows[1].endswith("r" * 60)
    assert told == ""
