"""The token by which APNs knows us, by a clock of the test."""

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from pushlane.dispatcher.sinks.apns import ProviderToken

KEY = generate_private_key(SECP256R1())
BOUNDARY_S = 735_000 * 2_400


class Clock:
    def __init__(self, now_s):
        self.now_s = now_s

    def __call__(self):
        return self.now_s


def token(clock):
    return ProviderToken(KEY, "ABC123DEFG", "DEF123GHIJ", clock)


def issued_at_s(text):
    return jwt.decode(text, options={"verify_signature": False})["iat"]


@given(st.floats(1.7e9, 2.5e9), st.floats(0, 1e7))
def test_all_processes_have_the_same_token_whenever_they_started(started_s, later_s):
    early, late = Clock(started_s), Clock(started_s + later_s)
    long_running = token(early)
    long_running.current()
    early.now_s = late.now_s

    assert long_running.current() == token(late).current()


@given(st.floats(1.7e9, 2.5e9))
def test_a_token_is_a_minute_old_at_least_and_41_at_most(now_s):
    age_s = now_s - issued_at_s(token(Clock(now_s)).current())

    assert 60 <= age_s <= 41 * 60 + 1


@given(st.floats(1.7e9, 2.5e9), st.floats(-59, 59))
def test_clocks_that_differ_by_less_than_a_minute_sign_nothing_for_the_future(now_s, off_s):
    assert issued_at_s(token(Clock(now_s + off_s)).current()) <= now_s


def test_it_changes_once_in_40_minutes():
    clock = Clock(BOUNDARY_S)
    ours = token(clock)
    seen = []
    for minute in range(240):
        clock.now_s = BOUNDARY_S + minute * 60
        seen.append(ours.current())

    assert len(set(seen)) == 7
    assert seen[1] == seen[40] != seen[41]


def test_it_says_who_signs_with_which_key():
    text = token(Clock(BOUNDARY_S + 60)).current()

    assert jwt.get_unverified_header(text)["kid"] == "ABC123DEFG"
    claims = jwt.decode(text, KEY.public_key(), algorithms=["ES256"], options={"verify_iat": False})
    assert claims == {"iss": "DEF123GHIJ", "iat": BOUNDARY_S}


@pytest.mark.parametrize("minutes", [20, 30, 40])
def test_an_expired_token_is_renewed_and_kept_for_40_minutes(minutes):
    clock = Clock(BOUNDARY_S + minutes * 60)
    ours = token(clock)
    expired = ours.current()

    renewed = ours.renewed(expired)

    assert issued_at_s(renewed) == clock.now_s - 60
    kept = []
    for minute in range(40):
        clock.now_s = BOUNDARY_S + (minutes + minute) * 60
        kept.append(ours.current())
    assert set(kept) == {renewed}
    clock.now_s += 60
    assert issued_at_s(ours.current()) == issued_at_s(renewed) + 2400


def test_of_many_that_find_it_expired_one_renews_it():
    ours = token(Clock(BOUNDARY_S + 30 * 60))
    expired = ours.current()

    first, second = ours.renewed(expired), ours.renewed(expired)

    assert first == second != expired


def test_a_young_token_is_not_renewed_as_that_would_be_one_too_many():
    clock = Clock(BOUNDARY_S + 19 * 60)
    ours = token(clock)

    assert ours.renewed(ours.current()) is None

    clock.now_s = BOUNDARY_S + 30 * 60
    renewed = ours.renewed(ours.current())
    clock.now_s += 18 * 60
    assert ours.renewed(renewed) is None
    clock.now_s += 60
    assert ours.renewed(renewed) not in (None, renewed)


def test_where_a_token_is_one_too_many_the_one_before_is_used_until_it_is_an_hour_old():
    clock = Clock(BOUNDARY_S + 60)
    ours = token(clock)
    too_many = ours.current()

    before, again = ours.before(too_many), ours.before(too_many)

    assert before == again == ours.current()
    assert issued_at_s(before) == BOUNDARY_S - 2400
    clock.now_s = BOUNDARY_S + 19 * 60 - 1
    assert ours.current() == before
    clock.now_s += 1
    assert ours.current() == too_many


def test_there_is_none_before_that_is_valid_late_or_twice():
    clock = Clock(BOUNDARY_S + 19 * 60)
    ours = token(clock)
    assert ours.before(ours.current()) is None

    clock.now_s = BOUNDARY_S + 60
    before = ours.before(ours.current())
    assert ours.before(before) is None
