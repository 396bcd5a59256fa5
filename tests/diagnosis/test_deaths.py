"""Of what the pushes of a task died, as `why` and `tasks` say it."""

from __future__ import annotations

from pushlane.core.task import Progress, State
from pushlane.diagnosis.causes import causes
from pushlane.diagnosis.situation import deaths_text, matter, short_deaths_text
from pushlane.model.reasons import DEAD_ADDRESS, Reasons
from tests.diagnosis.support import names, situation_of, task_of

DIED_OF = {"HTTP 404": 4_990, "no answer": 8}
COUNTS = Progress("t", delivered=2, dead=4_998, failed=4_998)


def test_it_tells_how_many_died_of_what() -> None:
    assert deaths_text(COUNTS, DIED_OF) == "4,998 of 5,000 died: HTTP 404 (4,990), no answer (8)"
    assert short_deaths_text(COUNTS, DIED_OF) == "4,998 died, most often HTTP 404"


def test_an_only_reason_has_no_count_of_its_own() -> None:
    counts = Progress("t", dead=7, failed=7)

    assert deaths_text(counts, {"HTTP 404": 7}) == "7 of 7 died: HTTP 404"
    assert short_deaths_text(counts, {"HTTP 404": 7}) == "7 died: HTTP 404"


def test_what_an_older_version_counted_has_no_known_reason() -> None:
    counts = Progress("t", dead=10, failed=7)

    assert deaths_text(counts, {"HTTP 404": 7}) == (
        "10 of 10 died: HTTP 404 (7), unknown reason (3)"
    )
    assert deaths_text(Progress("t", dead=10), {}) == "10 of 10 died"


def test_of_many_reasons_the_commonest_are_named() -> None:
    counts = Progress("t", dead=28, failed=28)

    text = deaths_text(counts, {f"HTTP {count}": count for count in range(7, 0, -1)})

    assert text.endswith(
        "HTTP 7 (7), HTTP 6 (6), HTTP 5 (5), HTTP 4 (4), HTTP 3 (3), 2 more reasons"
    )


def test_a_few_deaths_of_many_and_dead_addresses_do_not_matter() -> None:
    assert matter(Progress("t", delivered=99, dead=1), {"HTTP 404": 1})
    assert matter(Progress("t", delivered=999_900, dead=100), {"HTTP 404": 100})
    assert not matter(Progress("t", delivered=100, dead=1), {"HTTP 404": 1})
    assert not matter(Progress("t", dead=500), {DEAD_ADDRESS: 500})
    assert short_deaths_text(Progress("t", dead=500), {DEAD_ADDRESS: 500}) == ""


def test_a_task_that_is_done_and_delivered_nothing_says_so_whatever_it_died_of() -> None:
    of_addresses = Progress("t", dead=500), {DEAD_ADDRESS: 500}

    assert short_deaths_text(*of_addresses, has_ended=True) == "all 500 died: dead address"
    assert short_deaths_text(Progress("t", dead=1), {"HTTP 404": 1}, has_ended=True) == (
        "1 died: HTTP 404"
    )
    assert short_deaths_text(COUNTS, DIED_OF, has_ended=True) == "4,998 died, most often HTTP 404"


def test_many_deaths_stand_first_and_few_last() -> None:
    many = situation_of(task_of(total=9_000), progress=COUNTS, reasons=Reasons("t", DIED_OF))
    few = situation_of(
        progress=Progress("t", delivered=500, dead=1), reasons=Reasons("t", {"HTTP 404": 1})
    )

    assert names(many) == ["deaths", "going"]
    assert names(few) == ["going", "deaths"]
    assert names(situation_of()) == ["going"]


def test_a_task_that_is_done_tells_of_what_its_pushes_died() -> None:
    done = situation_of(
        task_of(state=State.DONE, total=5_000), progress=COUNTS, reasons=Reasons("t", DIED_OF)
    )

    [cause] = causes(done)

    assert cause.detail == (
        "it is done; 2 delivered, 4,998 dead; died of HTTP 404 (4,990), no answer (8)"
    )
