"""Attempts that the test lets succeed or fail, none of them ever for a clock to decide."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.backends.pulsar.connection import hedged

MOST = 3


class Attempts:
    """Counts those that began; each waits for an answer of its own."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[str]] = []
        self.cancelled: list[int] = []
        self.discarded: list[str] = []
        self.began = asyncio.Event()

    async def __call__(self) -> str:
        number = len(self.answers)
        answer = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        self.began.set()
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise

    async def until(self, count: int) -> None:
        while len(self.answers) < count:
            self.began.clear()
            await self.began.wait()

    def hedged(self, after_s: float = 0.0, most: int = MOST) -> asyncio.Task[str]:
        return asyncio.create_task(hedged(self, self.discarded.append, after_s=after_s, most=most))


async def test_the_first_that_succeeds_is_taken_and_the_others_are_cancelled():
    attempts = Attempts()
    got = attempts.hedged()
    await attempts.until(MOST)

    attempts.answers[1].set_result("second")

    assert await got == "second"
    await asyncio.sleep(0)
    assert sorted(attempts.cancelled) == [0, 2]
    assert len(attempts.answers) == MOST


async def test_one_that_answers_in_time_stays_alone():
    attempts = Attempts()
    got = attempts.hedged(after_s=3600.0)
    await attempts.until(1)

    attempts.answers[0].set_result("first")

    assert await got == "first"
    assert len(attempts.answers) == 1


async def test_what_is_given_twice_is_discarded_once():
    attempts = Attempts()
    got = attempts.hedged()
    await attempts.until(2)

    for number in (0, 1):
        attempts.answers[number].set_result(f"{number}")

    assert {await got, *attempts.discarded} == {"0", "1"}
    assert len(attempts.discarded) == 1


async def test_a_failure_is_raised_when_nothing_else_goes_on():
    attempts = Attempts()
    got = attempts.hedged(after_s=3600.0)
    await attempts.until(1)

    attempts.answers[0].set_exception(ConnectionError("refused"))

    with pytest.raises(ConnectionError, match="refused"):
        await got


async def test_a_failure_is_none_while_others_may_begin():
    attempts = Attempts()
    got = attempts.hedged(most=1000)
    await attempts.until(2)

    attempts.answers[0].set_exception(ConnectionError("timed out"))
    begun = len(attempts.answers)
    await attempts.until(begun + 1)
    attempts.answers[begun].set_result("later")

    assert await got == "later"


async def test_another_begins_at_once_when_all_before_have_failed(
    monkeypatch: pytest.MonkeyPatch,
):
    """Several may wait for one answer of the client, and fail together when that does."""
    loop = asyncio.get_running_loop()
    clock_s, ahead_s = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: clock_s() + ahead_s[0])
    attempts = Attempts()
    got = attempts.hedged(after_s=60.0)
    await attempts.until(1)
    ahead_s[0] = 60.0
    await attempts.until(2)

    for answer in attempts.answers:
        answer.set_exception(ConnectionError("timed out"))
    await attempts.until(3)
    attempts.answers[2].set_result("third")

    assert await got == "third"


async def test_a_failure_is_raised_when_all_have_begun_though_others_hang():
    """Else an opening that hangs for hours would say nothing, and hold up who waits for it."""
    attempts = Attempts()
    got = attempts.hedged()
    await attempts.until(MOST)

    attempts.answers[0].set_exception(ConnectionError("timed out"))

    with pytest.raises(ConnectionError, match="timed out"):
        await got
    await asyncio.sleep(0)
    assert sorted(attempts.cancelled) == [1, 2]
    assert len(attempts.answers) == MOST


async def test_a_cancelled_one_leaves_nothing_open():
    attempts = Attempts()
    got = attempts.hedged()
    await attempts.until(2)

    attempts.answers[0].set_result("first")
    await asyncio.sleep(0)  # that attempt ends, and nobody has seen it yet
    got.cancel()

    with pytest.raises(asyncio.CancelledError):
        await got
    await asyncio.sleep(0)
    assert attempts.discarded == ["first"]
    assert sorted(attempts.cancelled) == list(range(1, len(attempts.answers)))
