"""Who is found frozen, by the beats of who watches; and what becomes of what it had claimed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.backends.embedded import messages
from pushlane.backends.embedded.messages import (
    ClaimRequest,
    claim,
    drop_lane,
    give_back,
    give_back_all,
    register,
    take_from_frozen,
)
from pushlane.backends.embedded.owners import (
    MISSED,
    HeartbeatWatch,
    Owner,
    OwnerBeat,
    beat,
    come_back,
    last_beats,
)
from pushlane.backends.embedded.schema import prepare
from pushlane.core.ports import Taken
from tests.contract.reading import LANE, bodies, numbered

OTHER = OwnerBeat("other", 500)


@pytest.fixture
def store(tmp_path):
    """A store as jobs see it, with one lane."""
    with closing(_prepared(tmp_path / "store.db")) as connection:
        yield connection


def _prepared(path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    prepare(connection, path)
    messages.open_lane(connection, LANE)
    return connection


class Reader:
    """A reader of the lane, of an owner of its own that beats."""

    def __init__(self, store: sqlite3.Connection, owner: str) -> None:
        self._store = store
        self.owner = owner
        beat(store, owner, 1)
        self.reader_id, self.lane_id = register(store, owner, LANE)

    def claim(self, most: int = 100) -> list[Taken]:
        batches = claim(self._store, [ClaimRequest(self.reader_id, self.lane_id, LANE, most)], 0)
        return [taken for batch in batches for taken in batch.taken]

    def freeze(self) -> None:
        [last] = [last for last in last_beats(self._store) if last.owner == self.owner]
        assert take_from_frozen(self._store, last)


# Who is frozen


def test_who_misses_as_many_beats_of_the_watcher_as_it_may_is_frozen():
    watch = HeartbeatWatch("own")

    found = [watch.frozen([OwnerBeat("own", at_ms), OTHER]) for at_ms in range(MISSED + 1)]

    assert found == [[]] * MISSED + [[OTHER]]


def test_who_beats_is_not_frozen_however_slowly():
    watch = HeartbeatWatch("own")

    found = [
        watch.frozen([OwnerBeat("own", n), OwnerBeat("other", n // (MISSED - 1))])
        for n in range(99)
    ]

    assert found == [[]] * 99


def test_a_watcher_that_does_not_beat_itself_finds_nobody_frozen():
    """As after all have slept, on a full disk, or behind a process that holds the store."""
    watch = HeartbeatWatch("own")

    found = [watch.frozen([OwnerBeat("own", 1), OTHER]) for _ in range(99)]
    found += [watch.frozen([OTHER]) for _ in range(99)]

    assert found == [[]] * 198


def test_a_machine_that_slept_finds_nobody_frozen():
    """The first to wake beats at once, the others soon; the clock has jumped by hours."""
    watch = HeartbeatWatch("own")
    night = 8 * 3_600_000
    for n in range(MISSED - 1):
        watch.frozen([OwnerBeat("own", n), OwnerBeat("other", n)])

    found = watch.frozen([OwnerBeat("own", night), OwnerBeat("other", MISSED - 2)])
    found += watch.frozen([OwnerBeat("own", night), OwnerBeat("other", night)])

    assert found == []


def test_a_clock_that_is_set_back_makes_nobody_frozen():
    watch = HeartbeatWatch("own")

    found = [watch.frozen([OwnerBeat("own", -n), OwnerBeat("other", -n)]) for n in range(99)]

    assert found == [[]] * 99


def test_an_owner_that_knows_of_no_beats_is_never_frozen(store):
    register(store, "of an older version", LANE)

    assert last_beats(store) == []


# What becomes of its claims


def test_what_a_frozen_owner_had_claimed_goes_before_what_is_fresh(store):
    messages.publish(store, LANE, numbered(1, 5), 0, None)
    frozen, other = Reader(store, "frozen"), Reader(store, "other")
    frozen.claim(3)

    frozen.freeze()

    assert bodies(other.claim()) == numbered(1, 5)


def test_an_owner_that_beats_at_the_last_moment_keeps_its_claims(store):
    messages.publish(store, LANE, numbered(1, 5), 0, None)
    reader, other = Reader(store, "late"), Reader(store, "other")
    reader.claim()
    [last] = [last for last in last_beats(store) if last.owner == "late"]

    beat(store, "late", 2)

    assert not take_from_frozen(store, last)
    assert other.claim() == []


def test_a_frozen_owner_does_not_keep_a_lane_from_being_dropped(store, tmp_path):
    owner = Owner(tmp_path)
    owner.start()
    reader = Reader(store, owner.name)
    assert not drop_lane(store, LANE, tmp_path)

    reader.freeze()

    assert drop_lane(store, LANE, tmp_path)
    owner.end()


def test_an_owner_that_comes_back_reads_again(store, tmp_path):
    owner = Owner(tmp_path)
    owner.start()
    reader = Reader(store, owner.name)
    reader.freeze()
    messages.publish(store, LANE, numbered(1, 2), 0, None)

    assert not beat(store, owner.name, 7)
    assert come_back(store, owner.name, 8)

    assert bodies(reader.claim()) == numbered(1, 2)
    assert last_beats(store) == [OwnerBeat(owner.name, 8)]
    assert not drop_lane(store, LANE, tmp_path)
    owner.end()


def test_an_owner_that_was_not_frozen_has_nothing_to_come_back_from(store):
    Reader(store, "own")

    assert not come_back(store, "own", 8)
    assert last_beats(store) == [OwnerBeat("own", 1)]


def test_what_an_owner_claims_after_it_came_back_it_can_lose_again(store):
    messages.publish(store, LANE, numbered(1, 2), 0, None)
    reader, other = Reader(store, "frozen"), Reader(store, "other")
    reader.freeze()
    come_back(store, "frozen", 8)
    reader.claim()

    reader.freeze()

    assert bodies(other.claim()) == numbered(1, 2)


def test_a_frozen_owner_that_dies_leaves_nothing(store):
    messages.publish(store, LANE, numbered(1, 2), 0, None)
    reader = Reader(store, "frozen")
    reader.freeze()

    give_back_all(store, "frozen")

    for table in ("owners", "readers", "beats", "claims"):
        assert store.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


# What its late acks do


@pytest.mark.parametrize("taken_by_other", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_late_ack_ends_the_message_wherever_it_is(store, taken_by_other, kept):
    messages.open_lane(store, LANE, keep=kept)
    messages.publish(store, LANE, numbered(1, 2), 0, None)
    frozen, other = Reader(store, "frozen"), Reader(store, "other")
    late = frozen.claim(1)
    frozen.freeze()
    in_hand = other.claim(1) if taken_by_other else []

    _ack(store, late)
    _ack(store, in_hand)

    assert messages.backlog(store, LANE) == 1
    assert bodies(other.claim()) == [b"2"]
    assert store.execute("SELECT count(*) FROM messages").fetchone() == (2 if kept else 1,)


def test_a_late_ack_of_what_another_has_acked_changes_nothing(store):
    messages.publish(store, LANE, numbered(1, 2), 0, None)
    frozen, other = Reader(store, "frozen"), Reader(store, "other")
    late = frozen.claim(1)
    frozen.freeze()
    _ack(store, other.claim(1))

    _ack(store, late)

    assert messages.backlog(store, LANE) == 1


def test_a_late_ack_on_a_lane_that_is_dropped_changes_nothing_elsewhere(store):
    messages.publish(store, LANE, numbered(1, 2), 0, None)
    frozen = Reader(store, "frozen")
    late = frozen.claim()
    frozen.freeze()
    messages.drop_lane_now(store, frozen.lane_id)
    messages.open_lane(store, LANE)
    messages.publish(store, LANE, [b"new"], 0, None)

    _ack(store, late[:1])
    while messages.sweep(store):
        pass
    _ack(store, late[1:])

    assert bodies(Reader(store, "other").claim()) == [b"new"]
    for table in ("waiting", "dropped"):
        assert store.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


# The law

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "claim", "ack", "freeze", "come back", "leave", "die"]),
        st.integers(0, 2),  # which owner
        st.integers(1, 4),  # how many
    ),
    max_size=40,
)


@given(_STEPS)
def test_every_message_is_in_one_place_until_it_is_acked(steps):
    """Whoever freezes, wakes, leaves or dies, acks late or claims again without having noticed."""
    with closing(_prepared(":memory:")) as store:
        owners = [Reader(store, str(number)) for number in range(3)]
        in_hand: dict[str, list[Taken]] = {reader.owner: [] for reader in owners}
        published, acked = 0, set()
        for step, place, count in steps:
            reader = owners[place]
            if step == "publish":
                new = numbered(published + 1, published + count)
                messages.publish(store, LANE, new, 0, None)
                published += count
            elif step == "claim":
                in_hand[reader.owner] += reader.claim(count)
            elif step == "ack":
                done = in_hand[reader.owner][:count]
                del in_hand[reader.owner][:count]
                acked |= {one.body for one in done}
                _ack(store, done)
            elif step == "freeze":
                for last in last_beats(store):
                    if last.owner == reader.owner:
                        take_from_frozen(store, last)
            elif step == "come back":
                come_back(store, reader.owner, 9)
            else:
                if step == "leave":
                    give_back(store, reader.reader_id, reader.lane_id)
                else:
                    give_back_all(store, reader.owner)
                owners[place] = Reader(store, reader.owner)

            assert _places(store) == Counter(set(numbered(1, published)) - acked)

        for reader in owners:
            give_back_all(store, reader.owner)
        left = bodies(Reader(store, "last").claim(1000))
        assert sorted(left) == sorted(set(numbered(1, published)) - acked)


def _places(store: sqlite3.Connection) -> Counter[bytes]:
    """Each body, as often as there is a place that its message is in."""
    lane_id = messages.lane_id(store, LANE)
    base = messages.span(lane_id)[0]
    rows = store.execute(
        "SELECT body FROM messages JOIN ("
        "SELECT id FROM waiting UNION ALL SELECT id FROM claims UNION ALL "
        "SELECT messages.id FROM messages JOIN lanes ON lanes.id = ?1 "
        "WHERE messages.id - ?2 > head) AS places ON places.id = messages.id",
        (lane_id, base),
    )
    places = Counter(body for (body,) in rows)
    assert places.total() == messages.backlog(store, LANE)
    return places


def _ack(store: sqlite3.Connection, taken: list[Taken]) -> None:
    messages.ack(store, [one.handle for one in taken])
