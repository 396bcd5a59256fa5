"""Tables `[sinks.NAME]`: what they may hold, where options come from, what is not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import BadInput
from pushlane.settings import CONFIG_FILE, NAMES, Settings, load
from pushlane.settings.sinks import SinkSettings, read_sinks

SECRET = "hush-hush"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without a file of settings, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(f"PUSHLANE_{name.upper()}", raising=False)
    return tmp_path


def sink(**options: Any) -> SinkSettings:
    return SinkSettings(kind="webhook", options=options)


def test_a_table_is_a_sink_with_its_own_settings_and_the_options_of_its_kind(place: Path) -> None:
    (place / CONFIG_FILE).write_text(
        'slots = 7\n[sinks.sms]\nkind = "webhook"\nslots = 3\ntimeout_s = 5\nurl = "http://h/p"\n'
        '[sinks.file]\nkind = "log"\n[sinks.file.options]\npath = "out.jsonl"\n'
    )

    settings = load()

    assert settings.sinks["sms"].options == {"url": "http://h/p"}
    assert settings.sinks["file"].options == {"path": "out.jsonl"}
    sms, file = settings.of_sink("sms"), settings.of_sink("file")
    assert (sms.slots, sms.sink_timeout_s) == (3, 5.0)
    assert (file.slots, file.sink_timeout_s) == (7, 30.0)


def test_the_sink_default_is_served_unless_there_are_names_and_nobody_said_what_it_is() -> None:
    named = {"a": sink(url="http://h/p")}

    assert Settings().served == ("default",)
    assert Settings(sinks=named).served == ("a",)
    assert Settings(sinks=named, sink="log:out").served == ("default", "a")


def test_a_worker_reads_the_same_sinks_from_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = Settings(sinks={"sms": sink(url="http://h/p", headers={"X-Key": SECRET})})

    monkeypatch.setenv("PUSHLANE_SINKS", given.as_environment()["PUSHLANE_SINKS"])

    assert load().sinks == given.sinks


@pytest.mark.parametrize("name", ["", "SMS", "1st", "a.b", "a b", "x" * 33, "default"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"sink .* \(from pushlane.toml\): "):
        read_sinks({name: {"kind": "null"}}, "pushlane.toml")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"url": f"http://h/{SECRET}"}, "kind"),
        ({"kind": 1, "authorization": SECRET}, "kind"),
        (SECRET, "kind"),
        ({"kind": "webhook", "slots": 0, "authorization": SECRET}, "slots"),
        ({"kind": "webhook", "timeout_s": SECRET}, "timeout_s"),
        ({"kind": "webhook", "rate_per_s": 0}, "rate_per_s"),
        ({"kind": "webhook", "options": SECRET}, "options"),
        ({"kind": "webhook", "options": [SECRET]}, "options"),
    ],
)
def test_what_is_wrong_with_a_table_is_named_without_a_value(table: Any, named: str) -> None:
    with pytest.raises(BadInput, match=named) as refused:
        read_sinks({"sms": table}, "pushlane.toml")

    assert "sink 'sms' (from pushlane.toml)" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("slots", SECRET, "slots is a text; give a whole number from 1 to 100,000"),
        ("slots", 0, "slots is out of range; give a whole number from 1 to 100,000"),
        ("least_slots", True, "least_slots is true or false; give a whole number from 1"),
        ("timeout_s", [SECRET], "timeout_s is a list; give a number over 0"),
        ("rate_per_s", 0, "rate_per_s is out of range; give a number over 0"),
        ("retry_timeouts", "yes", "retry_timeouts is a text; give true or false"),
        ("cost", {"a": SECRET}, "cost is a table; give a number over 0"),
        ("url_env", "SMS_URL", "url and url_env are both given; leave one of them out"),
    ],
)
def test_an_option_that_cannot_be_is_told_with_what_can(option: str, value: Any, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_sinks({"hook": {"kind": "webhook", "url": SECRET, option: value}}, "pushlane.toml")

    assert str(refused.value) == f"sink 'hook' (from pushlane.toml): {told}"


def test_a_table_under_the_wrong_name_is_answered_with_the_right_one(place: Path) -> None:
    (place / CONFIG_FILE).write_text(f'[sink.sms]\nkind = "webhook"\nurl = "{SECRET}"\n')

    with pytest.raises(BadInput, match=r"a table \[sinks.sms\]") as refused:
        load()

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("value", [f'{{"sms": {SECRET}', f'"{SECRET}"', [SECRET]])
def test_settings_that_are_no_tables_are_refused_without_a_value(value: Any) -> None:
    with pytest.raises(BadInput, match=r"setting sinks \(from PUSHLANE_SINKS\)") as refused:
        read_sinks(value, "PUSHLANE_SINKS")

    assert SECRET not in str(refused.value)


def test_an_option_may_be_in_a_file_or_in_a_variable(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "token").write_text(f"Bearer {SECRET}\n")
    monkeypatch.setenv("SMS_URL", "http://h/p")

    own = sink(authorization_file="token", url_env="SMS_URL", only_http2=True)

    resolved = {"authorization": f"Bearer {SECRET}", "url": "http://h/p", "only_http2": True}
    assert own.resolved("sms") == resolved
    assert own.files() == [Path("token")]


def test_a_file_that_is_missing_is_named_with_its_sink_and_option() -> None:
    with pytest.raises(BadInput, match="sink sms: authorization_file none/token cannot be"):
        sink(authorization_file="none/token").resolved("sms")


def test_a_file_that_is_no_text_is_refused(place: Path) -> None:
    (place / "token").write_bytes(b"\xff\xfe")

    with pytest.raises(BadInput, match="cannot be read: it is not text"):
        sink(authorization_file="token").resolved("sms")


def test_an_empty_file_is_refused(place: Path) -> None:
    (place / "token").write_text(" \n")

    with pytest.raises(BadInput, match="sink sms: authorization_file token is empty"):
        sink(authorization_file="token").resolved("sms")


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("SMS_TOKEN", value)

    with pytest.raises(BadInput, match="sink sms: authorization_env names the variable SMS_TOKEN"):
        sink(authorization_env="SMS_TOKEN").resolved("sms")


def test_options_are_shown_without_what_may_be_a_secret() -> None:
    own = sink(
        url=f"https://me:{SECRET}@h/p?key={SECRET}",
        authorization=SECRET,
        headers={"X-Key": SECRET},
        token_file="t",
        only_http2=True,
    )

    assert own.shown_options() == {
        "url": "https://***@h/p",
        "authorization": "***",
        "headers": "***",
        "token_file": "t",
        "only_http2": True,
    }
    assert SECRET not in repr(own)


@pytest.mark.parametrize(("mode", "is_open"), [(0o600, False), (0o400, False), (0o640, True)])
def test_a_file_that_others_can_read_is_named_with_what_mends_it(
    place: Path, mode: int, is_open: bool
) -> None:
    key = place / "a key"
    key.touch(mode)
    key.chmod(mode)
    own = sink(authorization_file=str(key), url="http://h/p")

    assert own.files_open_to_others() == [
        f"authorization_file {key} can be read by others than its owner; fix it with "
        f"chmod 600 '{key}'"
    ] * int(is_open)


def test_a_mounted_secret_is_judged_by_what_its_links_lead_to(place: Path) -> None:
    """As Kubernetes mounts one: token -> ..data/token, ..data -> ..2026_11_23."""
    (place / "..2026_11_23").mkdir()
    token = place / "..2026_11_23" / "token"
    token.write_text(SECRET)
    (place / "..data").symlink_to("..2026_11_23")
    (place / "token").symlink_to("..data/token")
    own = sink(authorization_file=str(place / "token"))

    token.chmod(0o644)
    [told] = own.files_open_to_others()
    assert f"chmod 600 {place}/token" in told
    token.chmod(0o400)
    assert own.files_open_to_others() == []


def test_of_a_file_that_is_not_there_nobody_says_who_can_read_it(place: Path) -> None:
    assert sink(authorization_file=str(place / "none")).files_open_to_others() == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h.example/services/T0/XkdsJ8sdf78sdfjjsd", "https://h.example/services/T0/***"),
        ("https://h.example/bot12345:AAHdqTcvCH1vG/send", "https://h.example/***/send"),
        ("https://me:pass@h.example/p?key=1#tail", "https://***@h.example/p"),
        ("https://h.example/notifications-for-all", "https://h.example/notifications-for-all"),
        ("https://h.example", "https://h.example"),
        ("no URL", "no URL"),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_token(url: str, shown: str) -> None:
    assert sink(url=url).shown_options() == {"url": shown}
