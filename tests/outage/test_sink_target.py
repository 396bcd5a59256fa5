"""What a sink delivers to: the same place is known again, and nothing secret is part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.model.presence import Process, ServedSink, SinkTarget, decode_all, encode
from pushlane.model.recipients import Hasher, kept_hasher
from pushlane.model.targets import PlainTarget, SinkTargets, hashed, target_of, url_target
from tests.core.support import backend_in

HASHER = Hasher(b"a key of this test's")
WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
HOSTS = st.lists(WORDS.map(lambda word: f"h{word}"), min_size=1, max_size=3).map(".".join)
PATHS = st.lists(WORDS, max_size=3).map(lambda parts: "/" + "/".join(parts))
SCHEMES = st.sampled_from([("http", 80), ("https", 443)])


@given(SCHEMES, HOSTS, PATHS, st.booleans(), st.booleans())
def test_one_place_has_one_hash_however_it_is_written(
    scheme: tuple[str, int], host: str, path: str, names_port: bool, shouts: bool
) -> None:
    name, port = scheme
    plain = f"{name}://{host}{path}"
    at = (host.upper() if shouts else host) + (f":{port}" if names_port else "")
    again = f"{name.upper() if shouts else name}://{at}{path}"

    assert hashed(url_target("webhook", again), HASHER) == hashed(
        url_target("webhook", plain), HASHER
    )


@given(SCHEMES, HOSTS, PATHS, WORDS, WORDS, WORDS)
def test_user_password_and_query_change_nothing_and_are_nowhere_in_it(
    scheme: tuple[str, int], host: str, path: str, user: str, password: str, token: str
) -> None:
    bare = url_target("webhook", f"{scheme[0]}://{host}{path}")
    full = url_target(
        "webhook", f"{scheme[0]}://u{user}:Q{password}@{host}{path}?token=Z{token}#F{token}"
    )

    assert full == bare
    announced = hashed(full, HASHER)
    assert announced == hashed(bare, HASHER)
    assert f"Z{token}" not in str(full.place)
    assert f"Q{password}" not in str(full.place)


@given(
    st.tuples(SCHEMES, HOSTS, st.integers(1, 65_535), PATHS),
    st.tuples(SCHEMES, HOSTS, st.integers(1, 65_535), PATHS),
)
def test_two_places_have_two_hashes(one: Any, other: Any) -> None:
    first, second = (
        url_target("webhook", f"{scheme[0]}://{host}:{port}{path}")
        for scheme, host, port, path in (one, other)
    )

    same = hashed(first, HASHER).hash == hashed(second, HASHER).hash
    assert same == (one == other)


@given(WORDS, WORDS)
def test_what_stands_between_the_parts_of_a_place_cannot_be_moved(one: str, other: str) -> None:
    split = hashed(PlainTarget("k", "", (one, other)), HASHER)
    assert split.hash != hashed(PlainTarget("k", "", (one + other,)), HASHER).hash
    assert split.hash != hashed(PlainTarget("k", "", (one + other, "")), HASHER).hash


def test_a_dry_run_is_another_target_than_the_real_thing() -> None:
    place = ("https", "example.com", "443", "/")
    real, dry = PlainTarget("fcm", "", place), PlainTarget("fcm", "", place, delivers=False)
    assert hashed(real, HASHER).hash != hashed(dry, HASHER).hash


def test_kinds_at_one_url_are_two_targets() -> None:
    url = "https://example.com/push"
    assert (
        hashed(url_target("http", url), HASHER).hash
        != hashed(url_target("webhook", url), HASHER).hash
    )


def test_the_path_is_seen_neither_in_what_is_announced_nor_in_a_representation() -> None:
    target = url_target("webhook", "https://hooks.example.com:8443/T0KEN/push")
    announced = hashed(target, HASHER)

    assert str(announced) == "webhook at hooks.example.com:8443"
    assert "T0KEN" not in repr(target) + repr(announced)


def test_the_hash_is_of_the_key_too() -> None:
    target = url_target("webhook", "https://example.com/push")
    assert hashed(target, HASHER).hash != hashed(target, Hasher(b"another key")).hash


@pytest.mark.parametrize("url", ["https://", "no URL", "mailto:a@example.com", "http://[::1"])
def test_what_is_no_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(BadInput, match="webhook") as refused:
        url_target("webhook", url)
    assert url not in str(refused.value)


class OwnSink:
    name = "mine"
    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    async def deliver(self, batch: Any) -> Any:
        raise AssertionError("these tests deliver nothing")

    async def close(self) -> None:
        return


class OtherSink(OwnSink):
    pass


def test_an_object_of_somebodys_own_is_known_by_its_class() -> None:
    assert target_of(OwnSink()) == target_of(OwnSink())
    assert target_of(OwnSink()) != target_of(OtherSink())
    assert target_of(OwnSink()).kind == "mine"
    assert target_of(OwnSink()).delivers


def test_a_name_of_its_own_makes_an_object_no_other_target() -> None:
    one, other = OwnSink(), OwnSink()
    other.name = "mine-in-pod-2"

    assert hashed(target_of(one), HASHER).hash == hashed(target_of(other), HASHER).hash
    assert hashed(target_of(one), HASHER).hash != hashed(target_of(OtherSink()), HASHER).hash


async def test_the_processes_on_one_store_share_a_key_and_others_do_not(tmp_path: Path) -> None:
    target, hashes = url_target("webhook", "https://example.com/push"), []
    async with backend_in(tmp_path / "a") as (here, _), backend_in(tmp_path / "b") as (there, _):
        for backend in (here, here, there):
            targets = SinkTargets(backend.documents)
            assert targets.of(target) is None
            await targets.load()
            found = targets.of(target)
            assert found is not None
            hashes.append(found.hash)
        recipients = (await kept_hasher(here.documents)).digest(b"x")
        assert (await kept_hasher(here.documents, "sink-targets")).digest(b"x") != recipients

    assert hashes[0] == hashes[1]
    assert hashes[0] != hashes[2]


def test_a_process_that_does_not_say_what_it_delivers_to_can_be_read() -> None:
    old = b'{"id":"a","kind":"dispatcher","pid":1,"version":"0.1","served":[{"name":"default"}]}'
    [process] = decode_all([old])
    assert process.at("default").target is None


def test_the_target_comes_through_a_record() -> None:
    target = SinkTarget("webhook", "example.com", "00ff", True)
    served = (ServedSink(name="default", target=target),)
    process = Process(id="a", kind="dispatcher", pid=1, version="1", served=served)
    assert decode_all([encode(process)])[0].at("default").target == target
