"""What each kind of sink delivers to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pushlane.dispatcher.sinks import KINDS, open_sink, spec_options
from pushlane.dispatcher.sinks.named import open_sinks, target_in
from pushlane.model.targets import PlainTarget, target_of
from pushlane.settings import Settings
from tests.sinks.test_fcm import account
from tests.sinks.test_named import rewrite

URL = "https://push.example.com/in"


def pem() -> str:
    key = generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def apns(**options: Any) -> dict[str, Any]:
    given = {"key": pem(), "key_id": "A" * 10, "team_id": "B" * 10, "topic": "com.example.shop"}
    return {"kind": "apns", **given, **options}


def webpush(**options: Any) -> dict[str, Any]:
    return {"kind": "webpush", "subject": "mailto:a@example.com", "vapid_key": pem(), **options}


def fcm(**options: Any) -> dict[str, Any]:
    return {"kind": "fcm", "credentials": account(), **options}


def target(**table: Any) -> PlainTarget:
    return target_in(Settings(sinks={"it": table}), "it")


@pytest.mark.parametrize(
    ("table", "other"),
    [
        ({"kind": "webhook", "url": URL}, {"url": f"{URL}2"}),
        ({"kind": "http", "url": URL}, {"url": "https://push.example.com:8443/in"}),
        ({"kind": "gorush", "url": "http://gorush:8088", "platform": "ios"}, {"topic": "a.b"}),
        ({"kind": "gorush", "url": "http://gorush", "platform": "ios"}, {"platform": "android"}),
        (apns(), {"topic": "com.example.other"}),
        (apns(), {"environment": "sandbox"}),
        (apns(), {"push_type": "voip"}),
        (webpush(), {"vapid_key": pem()}),
        (fcm(), {"project": "another"}),
        (fcm(), {"dry_run": True}),
        ({"kind": "processor", "function": "shop.push:send"}, {"function": "shop.push:other"}),
        ({"kind": "on", "module": "shop.push"}, {"module": "shop.other"}),
        ({"kind": "log", "path": "a"}, {"path": "b"}),
    ],
)
def test_another_place_is_another_target(table: dict[str, Any], other: dict[str, Any]) -> None:
    assert target(**table) == target(**table)
    assert target(**table) != target(**{**table, **other})


@pytest.mark.parametrize(
    ("table", "other"),
    [
        ({"kind": "webhook", "url": URL}, {"authorization": "Bearer hush", "secrets": "a" * 32}),
        ({"kind": "webhook", "url": URL}, {"url": f"{URL}?key=hush", "only_http2": True}),
        ({"kind": "gorush", "url": "http://g", "platform": "ios"}, {"url": "http://g/api/push"}),
        (apns(), {"key": pem(), "key_id": "C" * 10}),
        (webpush(), {"subject": "mailto:b@example.com"}),
    ],
)
def test_credentials_and_options_that_lead_nowhere_else_change_nothing(
    table: dict[str, Any], other: dict[str, Any]
) -> None:
    assert target(**table) == target(**{**table, **other})


@pytest.mark.parametrize(
    ("spec", "delivers"),
    [
        ("null", False),
        ("print", False),
        ("log:x", False),
        (f"webhook:{URL}", True),
        ("a.b:c", True),
    ],
)
def test_null_print_and_log_deliver_nothing(spec: str, delivers: bool) -> None:
    assert spec_options(spec).target().delivers is delivers


def test_a_dry_run_of_fcm_delivers_nothing() -> None:
    assert target(**fcm()).delivers
    assert not target(**fcm(dry_run=True)).delivers


def test_there_is_a_target_of_each_kind() -> None:
    tables = [
        {"kind": "null"},
        {"kind": "print"},
        {"kind": "log", "path": "x"},
        {"kind": "webhook", "url": URL},
        {"kind": "processor", "function": "a:b"},
        {"kind": "on", "module": "a"},
        fcm(),
        apns(),
        webpush(),
        {"kind": "gorush", "url": URL, "platform": "ios"},
        {"kind": "http", "url": URL},
    ]
    assert [target(**table).kind for table in tables] == [table["kind"] for table in tables]
    assert {str(table["kind"]) for table in tables} == set(KINDS)


def test_with_to_address_the_host_is_each_pushs_own() -> None:
    assert target(kind="webhook", to_address=True).host == ""


async def test_a_sink_that_was_opened_has_the_target_of_its_settings(tmp_path: Path) -> None:
    settings = Settings(sink=f"webhook:{URL}", sinks={"it": {"kind": "webhook", "url": URL}})
    sinks = open_sinks(settings)
    try:
        assert target_of(sinks["default"]) == target_in(settings, "default")
        assert target_of(sinks["it"]) == target_in(settings, "it")
        assert target_of(sinks["it"]) == target_of(sinks["default"])
    finally:
        for sink in sinks.values():
            await sink.close()


async def test_a_url_that_changes_on_disk_is_another_target(tmp_path: Path) -> None:
    url = tmp_path / "url"
    url.write_text(URL)
    sinks = open_sinks(Settings(sinks={"it": {"kind": "webhook", "url_file": str(url)}}), ["it"])
    before = target_of(sinks["it"])
    rewrite(url, f"{URL}2")
    assert sinks["it"].look()  # type: ignore[attr-defined]
    assert target_of(sinks["it"]) != before
    await sinks["it"].close()


async def test_a_spec_and_a_table_of_one_place_are_one_target() -> None:
    sink = open_sink(f"webhook+h2c:{URL}", slots=1, timeout_s=1.0)
    assert target_of(sink) == target(kind="webhook", url=URL)
    await sink.close()
