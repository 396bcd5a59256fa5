"""The chart fits the code: its settings, version and bounds, and what is written of its values."""

from __future__ import annotations

import re

import jsonschema
import pytest
import yaml

from pushlane.cli import dispatch
from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks import _read_spec
from pushlane.settings import NAMES, Settings
from pushlane.version import VERSION
from scripts import chart

_SETTINGS = (chart.CHART / "templates/_settings.tpl").read_text()
_EXAMPLES = sorted((chart.CHART / "ci").glob("*.yaml"))


def test_what_is_written_of_the_values_is_as_they_are() -> None:
    assert chart.SCHEMA.read_text() == chart.schema_text(), "run: python -m scripts.chart"
    assert chart.README.read_text() == chart.readme_text(), "run: python -m scripts.chart"


@pytest.mark.parametrize("file", [chart.VALUES, *_EXAMPLES], ids=lambda file: file.name)
def test_values_fit_their_schema(file) -> None:
    schema = yaml.safe_load(chart.SCHEMA.read_text())
    jsonschema.Draft7Validator.check_schema(schema)

    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(file.read_text()))


def test_every_value_says_its_type() -> None:
    schema = yaml.safe_load(chart.SCHEMA.read_text())

    with pytest.raises(jsonschema.ValidationError, match="slots"):
        jsonschema.Draft7Validator(schema).validate({"dispatchers": {"main": {"slots": "many"}}})


@pytest.mark.parametrize(
    ("spec", "is_one"),
    [
        ("null", True),
        ("log:/tmp/a b.jsonl", True),
        ("webhook:http://127.0.0.1:9000/push", True),
        ("webhook+h2c:http://127.0.0.1:9000/push", True),
        ("https://example.test/push", True),
        ("shop.pushes:send", True),
        ("on:shop.pushes", True),
        ("log:", False),
        ("webhok:http://127.0.0.1:9000/push", False),
        ("webhookh2c:http://127.0.0.1", False),
    ],
)
def test_a_sink_is_one_that_a_dispatcher_takes(spec: str, is_one: bool) -> None:
    schema = yaml.safe_load(chart.SCHEMA.read_text())["properties"]["settings"]

    fits = not list(jsonschema.Draft7Validator(schema).iter_errors({"sink": spec}))
    try:
        _read_spec(spec)
    except BadInput:
        assert (fits, is_one) == (False, False)
    else:
        assert (fits, is_one) == (True, True)


def test_it_has_the_version_of_the_code() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())

    assert (about["version"], about["appVersion"]) == (VERSION, VERSION)


def test_settings_that_it_makes_are_settings() -> None:
    files = re.findall(r"Key: (\w+)$", _SETTINGS, re.MULTILINE)
    folders = re.findall(r"^(\w+_dir):", _SETTINGS, re.MULTILINE)

    assert len(files) > 8
    assert len(folders) == 3
    assert [name for name in files + folders if name not in NAMES] == []


def test_its_bounds_are_those_of_the_code() -> None:
    [drain, leave] = re.findall(r"\$drain := (\d+)|addf \$drain ([\d.]+) ", _SETTINGS)

    assert float(drain[0]) == Settings().drain_timeout_s
    assert float(leave[1]) == dispatch._LEAVE_S
