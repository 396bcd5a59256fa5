"""Since when what holds tasks does so, and what is said where nobody looked."""

from __future__ import annotations

from dataclasses import replace

from pushlane.now.spans import MOST, WATCHED_MS, Spans
from pushlane.now.verdict import LIMITED, RESTS, Held

AT_MS = 10_000_000
LIMIT = Held(LIMITED, "app/shop", "held by its limit of 20/s", "", sink="default")
REST = Held(RESTS, "sink/default", "answers 503, since 10:00", "", AT_MS - 60_000)


def looked(*looks: tuple[int, list[Held]]) -> Spans:
    """Spans after looks, each so many ms after AT_MS."""
    spans = Spans()
    for after_ms, holds in looks:
        spans.take(holds, AT_MS + after_ms)
    return spans


def times(spans: Spans) -> list[tuple[int, int, bool]]:
    """When each began and ended after AT_MS, and whether it still holds."""
    return [(one.from_ms - AT_MS, one.until_ms - AT_MS, one.is_open) for one in spans.since(AT_MS)]


def test_what_holds_at_the_first_look_may_have_begun_before() -> None:
    span = looked((0, [LIMIT]), (600, [LIMIT])).of(LIMIT)
    assert span is not None
    assert (span.from_ms, span.may_begin_sooner) == (AT_MS, True)


def test_what_begins_while_somebody_looks_began_then() -> None:
    span = looked((0, []), (600, [LIMIT])).of(LIMIT)
    assert span is not None
    assert (span.from_ms, span.may_begin_sooner) == (AT_MS + 600, False)


def test_what_tells_its_begin_is_believed() -> None:
    span = looked((0, [REST])).of(REST)
    assert span is not None
    assert (span.from_ms, span.may_begin_sooner) == (REST.since_ms, False)


def test_it_ends_with_the_last_look_that_had_it() -> None:
    spans = looked((0, []), (600, [LIMIT]), (1_200, [LIMIT]), (9_000, []))
    assert times(spans) == [(600, 1_200, False)]
    assert spans.of(LIMIT) is None


def test_what_is_away_for_a_moment_holds_on() -> None:
    spans = looked((0, [LIMIT]), (600, []), (1_200, [LIMIT]))
    assert times(spans) == [(0, 1_200, True)]


def test_a_sink_that_rests_anew_rests_twice() -> None:
    anew = replace(REST, since_ms=AT_MS + 1_000)
    assert times(looked((0, [REST]), (1_200, [anew]))) == [
        (-60_000, 0, False),
        (1_000, 1_200, True),
    ]


def test_what_holds_before_and_after_a_while_without_a_look_is_one() -> None:
    spans = looked((0, [LIMIT]), (WATCHED_MS, [LIMIT]), (4 * WATCHED_MS, [LIMIT]))
    assert times(spans) == [(0, 4 * WATCHED_MS, True)]


def test_what_is_gone_after_a_while_without_a_look_may_have_ended_later() -> None:
    [span] = looked((0, [LIMIT]), (WATCHED_MS, [])).since(AT_MS)
    assert (span.until_ms, span.is_open, span.may_end_later) == (AT_MS, False, True)


def test_while_nobody_looks_for_long_nobody_knows() -> None:
    spans = looked((0, [LIMIT]), (20 * WATCHED_MS, [LIMIT]))
    before, after = spans.since(AT_MS)
    assert (before.until_ms, before.may_end_later) == (AT_MS, True)
    assert (after.from_ms, after.may_begin_sooner) == (AT_MS + 20 * WATCHED_MS, True)


def test_what_ended_before_is_not_shown() -> None:
    spans = looked((-9_000, [LIMIT]), (-1_000, []), (600, [REST]))
    assert [one.held.kind for one in spans.since(AT_MS)] == [RESTS]


def test_its_length_has_a_bound() -> None:
    spans = Spans()
    for look in range(3 * MOST):
        spans.take([LIMIT] if look % 2 else [], AT_MS + look * 6_000)
    many = [replace(LIMIT, subject=f"task/{one}") for one in range(2 * MOST)]
    spans.take(many, AT_MS + 3 * MOST * 6_000)
    assert MOST < len([*spans.since(0)]) <= 2 * MOST
