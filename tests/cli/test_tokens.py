"""`tokens`: dead addresses for who owns them, and those that are registered again."""

from __future__ import annotations

import asyncio
import base64
import csv
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.core.task import now_ms
from pushlane.model.address_seal import AddressSeal
from pushlane.model.masks import FieldType, Masks
from pushlane.model.recipients import AddressDeath, kept_hasher
from pushlane.settings import load
from pushlane.util.texts import Secret
from tests.command import Command, Ran

KEY, OTHER_KEY = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
DAY_MS = 86_400_000
HEADING = "sink,fingerprint,app,reason,died_at_ms,recorded_at_ms"


def die(*tokens: str, sink: str = "fcm", key: str = KEY, ago_ms: int = 0) -> None:
    """Record dead addresses, as a dispatcher with this key does; with an empty one without it."""

    async def record() -> None:
        async with connect(load()) as backend:
            hashes = (await kept_hasher(backend.documents)).hashes(tokens)
            seal = AddressSeal(Secret(key)).sealed if key else lambda _: ""
            at_ms = now_ms() - ago_ms
            deaths = [
                AddressDeath(one, at_ms, "UNREGISTERED", "shop", seal(token))
                for one, token in zip(hashes, tokens, strict=True)
            ]
            await backend.dead_addresses.record(sink, deaths, at_ms)

    asyncio.run(record())


def rows(ran: Ran) -> list[dict[str, str]]:
    return list(csv.DictReader(ran.stdout.splitlines()))


@pytest.fixture
def with_key(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("PUSHLANE_ADDRESS_KEY", KEY)
    return command


def test_dead_addresses_are_listed_by_a_fingerprint_newest_first(with_key: Command) -> None:
    die("token-1", ago_ms=DAY_MS)
    die("token-2", sink="apns")

    ran = with_key("tokens", "dead")

    lines = [line.split() for line in ran.stdout.splitlines()]
    assert lines[0] == ["SINK", "FINGERPRINT", "ADDRESS", "APP", "DIED", "RECORDED", "REASON"]
    assert [line[0] for line in lines[1:]] == ["apns", "fcm"]
    assert [len(line[1]) for line in lines[1:]] == [16, 16]
    assert lines[2][2] == Masks(KEY).mask("token-1", FieldType.TOKEN)
    assert lines[2][3:] == ["shop", "1d", "1d", "UNREGISTERED"]
    assert "token-" not in ran.stdout + ran.stderr


def test_without_a_key_there_is_no_mask(command: Command) -> None:
    die("token-1")

    heading = command("tokens", "dead").stdout.splitlines()[0]

    assert heading.split() == ["SINK", "FINGERPRINT", "APP", "DIED", "RECORDED", "REASON"]


def test_spaces_around_a_key_change_no_mask(
    with_key: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    die("token-1")
    shown = with_key("tokens", "dead").stdout

    monkeypatch.setenv("PUSHLANE_ADDRESS_KEY", f" {KEY} , {OTHER_KEY}")

    assert with_key("tokens", "dead").stdout.split()[9] == shown.split()[9]
    assert shown.split()[9] == Masks(KEY).mask("token-1", FieldType.TOKEN)


def test_a_mask_needs_the_key_of_its_time(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    die("token-1")
    die("token-2", key="")
    monkeypatch.setenv("PUSHLANE_ADDRESS_KEY", OTHER_KEY)

    ran = command("tokens", "dead")

    assert ran.exit_code == 0
    assert [line.split()[2] for line in ran.stdout.splitlines()[1:]] == ["-", "-"]


def test_they_are_chosen_by_time_and_sink(command: Command) -> None:
    die("old", ago_ms=10 * DAY_MS)
    die("one", "two")
    die("three", sink="apns")

    assert len(command("tokens", "dead", "--json").json) == 3
    assert len(command("tokens", "dead", "--json", "--since", "11d").json) == 4
    assert [one["sink"] for one in command("tokens", "dead", "--json", "--sink", "apns").json] == [
        "apns"
    ]


def test_a_table_ends_at_its_limit_and_says_so(command: Command) -> None:
    die(*(f"token-{number}" for number in range(120)))

    ran = command("tokens", "dead")

    assert len(ran.stdout.splitlines()) == 101
    assert "there are more than 100" in ran.stderr
    assert len(command("tokens", "dead", "--limit", "0").stdout.splitlines()) == 121
    assert len(command("tokens", "dead", "--json", "--limit", "3").json) == 3


def test_revealed_they_are_all_there_for_programs(with_key: Command) -> None:
    tokens = [f"token-{number}" for number in range(1_200)]
    die(*tokens)

    ran = with_key("tokens", "dead", "--reveal", "--csv")

    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0] == f"{HEADING},address"
    assert [row["address"] for row in rows(ran)] == tokens
    assert "1,200 addresses are shown in the clear" in ran.stderr
    assert [row["address"] for row in with_key("tokens", "dead", "--reveal", "--json").json] == (
        tokens
    )
    assert "token-1199" in with_key("tokens", "dead", "--reveal", "--limit", "5").stdout


def test_unless_they_are_to_be_revealed_no_form_shows_them(with_key: Command) -> None:
    die("token-1")

    shown = [with_key("tokens", "dead", form) for form in ("--csv", "--json")]

    assert rows(shown[0])[0].keys() == {*HEADING.split(",")}
    assert shown[1].json[0].keys() == {*HEADING.split(",")}
    assert not any("token-1" in ran.stdout + ran.stderr for ran in shown)


def test_nothing_is_revealed_without_a_key(command: Command) -> None:
    die("token-1")

    ran = command("tokens", "dead", "--reveal")

    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert "--reveal needs the setting address_key (PUSHLANE_ADDRESS_KEY)" in ran.stderr


def test_a_key_that_does_not_open_them_is_told(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    die("token-1", "token-2")
    monkeypatch.setenv("PUSHLANE_ADDRESS_KEY", OTHER_KEY)

    ran = command("tokens", "dead", "--reveal", "--csv")

    assert ran.exit_code == 1
    assert "2 addresses cannot be shown: address_key does not open them" in ran.stderr
    assert [row["address"] for row in rows(ran)] == ["", ""]
    assert "in the clear" not in ran.stderr


def test_an_older_key_behind_the_new_one_opens_what_it_sealed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    die("token-1")
    die("token-2", key=OTHER_KEY)
    monkeypatch.setenv("PUSHLANE_ADDRESS_KEY", f"{OTHER_KEY}, {KEY}")

    ran = command("tokens", "dead", "--reveal", "--json")

    assert [row["address"] for row in ran.json] == ["token-1", "token-2"]


def test_what_was_recorded_without_a_key_is_told(with_key: Command) -> None:
    die("token-1")
    die("token-2", key="")

    ran = with_key("tokens", "dead", "--reveal", "--json")

    assert ran.exit_code == 0
    assert [row.get("address") for row in ran.json] == ["token-1", None]
    assert "address" not in ran.json[1]
    assert "1 address cannot be shown: no address_key was set at the time" in ran.stderr


def test_a_key_is_no_setting_that_is_shown(with_key: Command) -> None:
    assert KEY not in with_key("config").stdout
    assert KEY not in with_key("config", "--json").stdout


def test_a_key_that_is_none_is_refused_and_not_shown(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_ADDRESS_KEY", "not-32-bytes")

    for ran in (command("tokens", "dead", "--reveal"), command("dispatch", "--sink", "null")):
        assert ran.exit_code == 1
        assert "setting address_key cannot be used: give 32 random bytes" in ran.stderr
        assert "not-32-bytes" not in ran.stderr


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("--since", "tomorrow"), "is neither a duration"),
        (("--since", "2999-01-01"), "is still to come"),
        (("--csv", "--json"), "exclude each other"),
    ],
)
def test_what_cannot_be_listed_is_refused(
    command: Command, given: tuple[str, ...], reason: str
) -> None:
    ran = command("tokens", "dead", *given)

    assert ran.exit_code == 1
    assert reason in ran.stderr


@pytest.mark.parametrize(("form", "expected"), [("--csv", HEADING + "\n"), ("--json", "[]\n")])
def test_where_none_is_dead_that_is_said(command: Command, form: str, expected: str) -> None:
    ran = command("tokens", "dead", form, "--sink", "fcm")

    assert ran.exit_code == 0
    assert ran.stdout == expected
    assert "no dead address was recorded at the sink fcm since" in ran.stderr


def is_suppressed(command: Command, token: str) -> bool:
    return command("suppress", "check", token).stdout == "suppressed: at the sink fcm\n"


def test_what_a_file_registers_lives(command: Command) -> None:
    die("token-1", "token-2")
    path = command.file("new.csv", "user,token\n7,token-1\n8,token-9\n9,\n")

    ran = command("tokens", "register", path, "--sink", "fcm")

    assert ran.exit_code == 0
    assert "2 registered, of which 1 had been dead or suppressed" in ran.stderr
    assert "1 row is left out, the first in line 4" in ran.stderr
    assert "no sink is named 'fcm' yet" in ran.stderr
    assert len(command("tokens", "dead", "--json").json) == 1
    assert not is_suppressed(command, "token-1")
    assert is_suppressed(command, "token-2")


def test_a_subscription_of_a_browser_is_an_address_too(command: Command) -> None:
    subscription = '{"endpoint":"https://push.example/1","keys":{"auth":"x"}}'
    die(subscription)
    path = command.file("new.jsonl", f'{{"subscription": {subscription}}}\n{{"subscription": 1.5}}')

    ran = command("tokens", "register", path, "--sink", "fcm", "--column", "subscription")

    assert "1 registered, of which 1 had been dead or suppressed" in ran.stderr
    assert "1 row is left out, the first in line 2" in ran.stderr


def test_what_died_before_it_was_registered_does_not_die_again(command: Command) -> None:
    path = command.file("new.jsonl", '{"id": "token-1"}\n')
    command("tokens", "register", path, "--sink", "fcm", "--column", "id")

    die("token-1", ago_ms=1_000)
    assert command("tokens", "dead", "--json").json == []
    die("token-1", ago_ms=-1_000)
    assert len(command("tokens", "dead", "--json").json) == 1


def test_addresses_can_be_given_one_a_line(command: Command, tmp_path: Path) -> None:
    die("token-1", "token-2")

    ran = command("tokens", "register", "-", "--sink", "fcm", given="token-1\n\n token-3 \n")

    assert "2 registered, of which 1 had been dead or suppressed" in ran.stderr
    assert not is_suppressed(command, "token-1")


def test_a_stream_may_be_a_file_with_a_format(command: Command) -> None:
    die("token-1")

    ran = command(
        "tokens", "register", "-", "--format", "csv", "--sink", "fcm", given="token\ntoken-1\n"
    )

    assert "1 registered, of which 1" in ran.stderr


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("-", "--sink", ""), "say at which sink"),
        (("-", "--sink", "a\x00"), "is not a name of an app or a sink"),
        (("missing.csv", "--sink", "fcm"), "does not exist"),
        (("other.csv", "--sink", "fcm"), "has no column 'token'; its columns are: device"),
    ],
)
def test_what_cannot_be_registered_is_refused(
    command: Command, given: tuple[str, ...], reason: str
) -> None:
    command.file("other.csv", "device\nx\n")

    ran = command("tokens", "register", *given)

    assert ran.exit_code == 1
    assert reason in ran.stderr


def test_a_dispatcher_records_what_its_sink_calls_dead(
    with_key: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_key.file(
        "phones.py",
        "from pushlane import Outcome\n"
        "async def send(push):\n"
        "    return Outcome.gone('UNREGISTERED') if push.recipient == 'user-1' else None\n",
    )
    monkeypatch.syspath_prepend(with_key.folder)
    monkeypatch.setenv("PUSHLANE_SINK", "phones:send")
    first = with_key.submit("high", 3)
    with_key("dispatch", "--drain")
    second = with_key.submit("high", 3)
    with_key("dispatch", "--drain")

    ends = [with_key("task", "show", task, "--json").json for task in (first, second)]
    assert [(one["delivered"], one["dead"], one["dropped"]) for one in ends] == [
        (2, 1, 0),
        (2, 0, 1),
    ]
    [row] = with_key("tokens", "dead", "--reveal", "--json").json
    assert (row["sink"], row["address"]) == ("default", "user-1")


def test_the_scope_of_a_dead_address_is_that_of_suppress(command: Command) -> None:
    die("token-1")

    assert command("suppress", "count", "--json").json == [
        {"scope": "sink", "name": "fcm", "suppressed": 1}
    ]
