"""Task specs: TOML with submit's options, refused where they cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.task import DeliveryMode, Level
from pushlane.pipeline.fanout.request import FanoutRequest
from pushlane.pipeline.spec import load_spec, parse_spec
from pushlane.settings import Settings

NOW_MS = 1_800_000_000_000


def spec_file(folder: Path, text: str) -> Path:
    path = folder / "task.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(BadInput) as raised:
        load_spec(spec_file(folder, text))
    return str(raised.value)


def test_a_spec_asks_for_what_submit_would(tmp_path: Path) -> None:
    spec = load_spec(
        spec_file(
            tmp_path,
            'level = "low"\ntitle = "Hi {name}"\ndata = ["city"]\ndelivery = "once"\n'
            'attribute = ["city"]\ntrace_id = "trace"\n'
            'expires = "2h"\nretention = "1h"\ndelay = "10m"\n',
        )
    )

    request = spec.request(NOW_MS, key="k")

    assert (request.level, request.title, request.data) == (Level.LOW, "Hi {name}", ("city",))
    assert (request.delivery, request.key) == (DeliveryMode.ONCE, "k")
    assert request.expires_at_ms == NOW_MS + 7_200_000
    assert (request.attributes, request.trace_id) == (("city",), "trace")
    assert request.not_before_ms == NOW_MS + 600_000
    assert request.retention_s == 3_600


def test_the_key_of_a_spec_holds_unless_another_is_given() -> None:
    spec = parse_spec({"level": "high", "key": "mine"}, "here")

    assert (spec.request(NOW_MS).key, spec.request(NOW_MS, "other").key) == ("mine", "other")


def test_options_may_be_written_as_on_the_command_line() -> None:
    assert parse_spec({"level": "high", "zone-column": "tz"}, "here").zone_column == "tz"


def test_an_unknown_option_is_named_with_the_nearest(tmp_path: Path) -> None:
    said = refused(tmp_path, 'level = "high"\ntitel = "Hi"\n')

    assert "'titel'; did you mean 'title'?" in said


def test_a_missing_level_is_named(tmp_path: Path) -> None:
    assert "has no 'level'" in refused(tmp_path, 'title = "Hi"\n')


def test_a_bad_value_is_named_without_showing_it(tmp_path: Path) -> None:
    said = refused(tmp_path, 'level = "secret-word"\n')

    assert "'level'" in said
    assert "'high', 'medium' or 'low'" in said
    assert "secret-word" not in said


def test_an_order_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "no order" in refused(tmp_path, 'level = "high"\nordered_by = "user"\n')


def test_what_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    assert "line 1" in refused(tmp_path, "level = \n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.toml cannot be read: No such file"):
        load_spec(tmp_path / "none.toml")


def test_a_spec_is_checked_as_a_submit_is(tmp_path: Path) -> None:
    spec = parse_spec({"level": "low", "app": ""}, "here")

    with pytest.raises(BadInput, match="app is empty"):
        spec.check(Settings(data_dir=tmp_path))


def test_the_key_of_a_fan_out_is_the_one_that_earlier_versions_made() -> None:
    options = {"level": "high", "title": "Hi {n}", "attribute": ["city"], "expires": "2h"}

    plain = FanoutRequest(audience="users", spec=parse_spec({"level": "high"}, "here"))
    given = FanoutRequest(audience="users", spec=parse_spec({**options, "delivery": "once"}, "x"))

    assert plain.task_key == "fanout-c677d544c496cc8f"
    assert given.task_key == "fanout-2e54be53e84367b2"


def test_sinks_and_addresses_are_part_of_the_key_of_a_fan_out() -> None:
    options = {"level": "high", "sink": ["fcm", "sms"], "address": ["fcm=token", "sms=phone"]}

    plain, given = (
        FanoutRequest(audience="users", spec=parse_spec(spec, "here"))
        for spec in ({"level": "high"}, options)
    )

    assert given.spec.request(NOW_MS).sink == ("fcm", "sms")
    assert given.task_key != plain.task_key


def test_a_payload_is_a_file_beside_the_spec_or_a_table_in_it(tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"*": {"text": "Hi"}}')
    named = load_spec(spec_file(tmp_path, 'level = "high"\npayload = "payload.json"\n'))
    (tmp_path / "payload.json").unlink()

    written = load_spec(spec_file(tmp_path, 'level = "high"\n[payload."*"]\ntext = "Hi"\n'))

    assert named.request(NOW_MS).payload == written.request(NOW_MS).payload
    assert written.request(NOW_MS).payload == {"*": {"text": "Hi"}}
