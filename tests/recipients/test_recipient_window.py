"""What two pushes must have in common to be duplicates, or one the newer of the other."""

from __future__ import annotations

from pushlane.core.push import Push
from pushlane.model.recipients import collapse_mark, dedupe_mark


def push(
    task: str = "t", seq: int = 1, to: str = "anna", at_ms: int = 5, key: str = "score"
) -> Push:
    return Push(task, seq, to, submitted_at_ms=at_ms, collapse=key)


def test_pushes_of_a_task_for_one_recipient_have_a_mark_in_common() -> None:
    assert dedupe_mark(push(seq=1)).key == dedupe_mark(push(seq=2, key="")).key
    assert dedupe_mark(push(seq=1)).token != dedupe_mark(push(seq=2)).token


def test_other_tasks_and_recipients_have_another() -> None:
    marks = {dedupe_mark(one).key for one in (push(), push(task="u"), push(to="bert"))}

    assert len(marks) == 3


def test_a_collapse_key_is_one_of_its_app_and_recipient() -> None:
    keys = {
        collapse_mark("app", push()).key,
        collapse_mark("app", push(task="u", seq=9, at_ms=9)).key,
        collapse_mark("other", push()).key,
        collapse_mark("app", push(to="bert")).key,
        collapse_mark("app", push(key="goal")).key,
    }

    assert len(keys) == 4


def test_parts_do_not_run_into_each_other() -> None:
    assert collapse_mark("a", push(key="bc")).key != collapse_mark("ab", push(key="c")).key


def test_a_later_task_is_newer_and_in_a_task_a_later_row() -> None:
    marks = [
        collapse_mark("app", one)
        for one in (push(seq=9, at_ms=99), push(seq=10, at_ms=99), push(task="a", at_ms=100))
    ]

    assert [mark.token for mark in marks] == sorted(mark.token for mark in marks)


def test_a_mark_does_not_show_the_recipient() -> None:
    assert "anna" not in str(dedupe_mark(push())) + str(collapse_mark("app", push()))
