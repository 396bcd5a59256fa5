"""Checks of how a service, a store or a host is set up, and the findings that they make.

A check is pure: it looks at facts that were collected before. Facts that nobody could collect skip
the checks that need them, each with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import msgspec

from pushlane.core.errors import PushlaneError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first: pushes are lost or cannot go; it hurts under load or after a crash; good to know."""

F = TypeVar("F")
T = TypeVar("T")


class Unseen(Exception):
    """A fact that could not be collected; its text says why."""


class Fact(Generic[T]):
    """A fact, or the reason why it could not be collected."""

    def __init__(self, value: T | None = None, why_not: str = "") -> None:
        self._value = value
        self.why_not = why_not

    def get(self) -> T:
        """Return the fact. Raises Unseen when there is none."""
        if self.why_not:
            raise Unseen(self.why_not)
        return cast(T, self._value)

    def get_or(self, instead: T) -> T:
        """Return the fact, or this value when there is none."""
        return instead if self.why_not else cast(T, self._value)


async def fact_of(question: Awaitable[T], within_s: float, who: str = "it") -> Fact[T]:
    """Collect a fact; an error of ours, and a time-out, is a reason why there is none."""
    try:
        async with asyncio.timeout(within_s):
            return Fact(await question)
    except PushlaneError as error:
        return Fact(why_not=str(error))
    except TimeoutError:
        return Fact(why_not=f"{who} does not answer within {within_s:g} s")


class Remark(NamedTuple):
    """Something that a check found.

    `mend` is the command that mends it. `target` names what a fix would change; without one there
    is none. What a fix `destroys` is confirmed first.
    """

    severity: Severity
    what: str
    mend: str = ""
    target: tuple[str, ...] = ()
    destroys: bool = False


class Check(NamedTuple, Generic[F]):
    """One thing that is looked at in facts of one kind, and why it matters."""

    name: str
    area: str
    looks_at: str
    why: str
    look: Callable[[F], Iterable[Remark]]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A remark of a check, with all that a person needs to act on it."""

    check: str
    area: str
    severity: Severity
    what: str
    why: str
    mend: str = ""
    can_fix: bool = False
    target: tuple[str, ...] = ()
    destroys: bool = False


class Examination(NamedTuple):
    """The findings, worst first, the checks that found nothing, and why others were skipped."""

    findings: list[Finding]
    passed: list[str]
    skipped: dict[str, str]


def examined(checks: Iterable[Check[F]], facts: F) -> Examination:
    """Run the checks on these facts. What one finds before it lacks a fact counts too.

    A fact that has another form than a check expects, as of another version of a service, skips
    that check, and no other.
    """
    result = Examination([], [], {})
    for check in checks:
        before = len(result.findings)
        try:
            for remark in check.look(facts):
                result.findings.append(_finding(check, remark))
        except Unseen as reason:
            result.skipped[check.name] = str(reason)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            kind = type(error).__name__
            result.skipped[check.name] = f"the answer has an unexpected form ({kind})"
        else:
            if len(result.findings) == before:
                result.passed.append(check.name)
    return result


def combined(parts: Sequence[Examination]) -> Examination:
    """Return several examinations as one."""
    findings = [finding for part in parts for finding in part.findings]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    passed = [name for part in parts for name in part.passed]
    skipped = {name: why for part in parts for name, why in part.skipped.items()}
    return Examination(findings, passed, skipped)


def _finding(check: Check[Any], remark: Remark) -> Finding:
    return Finding(
        check=check.name,
        area=check.area,
        severity=remark.severity,
        what=remark.what,
        why=check.why,
        mend=remark.mend,
        can_fix=bool(remark.target),
        target=remark.target,
        destroys=remark.destroys,
    )


def outside(
    name: str, found: str, least: tuple[int, ...], tried: tuple[int, ...]
) -> Iterator[Remark]:
    """Remark on a version that is too old, or newer than those that were tried.

    `tried` is the newest of them, to as many places as count.
    """
    numbers = version_of(found)
    lowest, highest = (".".join(map(str, one)) for one in (least, tried))
    if numbers < least:
        what = f"{name} is {found or 'unknown'}; it has to be {lowest} or later"
        yield Remark("error", what, f"upgrade {name}")
    elif numbers[: len(tried)] > tried:
        what = f"{name} is {found}; versions after {highest} are not tested"
        yield Remark("warning", what, f"use {name} {highest}, or a pushlane that is tested with it")


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 0, 8) of `4.0.8-rc1`."""
    numbers: list[int] = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
