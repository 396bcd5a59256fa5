"""Where settings come from, in what order, and what is said of those that cannot be used."""

from __future__ import annotations

import pytest

from pushlane.core.errors import BadInput
from pushlane.settings import CONFIG_FILE, NAMES, load, misspelt_variables, origins


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A working folder without a configuration file, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(f"PUSHLANE_{name.upper()}", raising=False)
    return tmp_path


def test_without_anything_the_embedded_backend_is_used():
    assert load().broker == "embedded"


def test_a_flag_goes_over_the_environment_and_that_over_the_file(place, monkeypatch):
    (place / CONFIG_FILE).write_text("slots = 1\nprefetch = 1\nbatch = 1\n")
    monkeypatch.setenv("PUSHLANE_SLOTS", "2")
    monkeypatch.setenv("PUSHLANE_PREFETCH", "2")

    settings = load({"slots": 3, "prefetch": None})

    assert (settings.slots, settings.prefetch, settings.batch) == (3, 2, 1)


def test_each_value_says_where_it_came_from(place, monkeypatch):
    (place / CONFIG_FILE).write_text("batch = 1\n")
    monkeypatch.setenv("PUSHLANE_PREFETCH", "2")
    flags = {"slots": 3, "sink": None}

    found = origins(load(flags), flags)

    assert found["slots"] == "flag"
    assert found["prefetch"] == "PUSHLANE_PREFETCH"
    assert found["batch"] == CONFIG_FILE
    assert found["sink"] == "default"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", 0),
        ("prefetch", -1),
        ("broker", "kafka://x"),
        ("log_format", "xml"),
        ("batch", "x"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name, value):
    with pytest.raises(BadInput, match=f"setting {name}={value!r} \\(from flag\\)"):
        load({name: value})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("slots", "x", "give a whole number from 1 to 100,000"),
        ("later_max", 0, "give a whole number from 1"),
        ("sink_timeout_s", "-1", "give a number over 0"),
        ("retry_first_s", "x", "give a number over 0 to 86,400"),
        ("retention_s", "-1", "give a number from 0"),
        ("receipts", "maybe", "give one of off, on, required"),
        ("compression", "gzip", "give one of lz4, none, snappy, zlib, zstd"),
        ("namespace", 5, "give a text"),
    ],
)
def test_it_says_what_would_fit(name, value, wanted):
    with pytest.raises(BadInput, match=rf"setting {name}=.*: {wanted}$"):
        load({name: value})


@pytest.mark.parametrize("needs", ["retention_s", "dead_retention_s", "ledger_window_s"])
def test_a_task_is_kept_for_as_long_as_something_needs_it(needs):
    kept = {"retention_s": 0, "dead_retention_s": 0, "ledger_window_s": 61}

    with pytest.raises(BadInput, match=f"task_retention_s=100.*at least {needs}=200"):
        load({**kept, "task_retention_s": 100, needs: 200})

    assert load({**kept, "task_retention_s": 200, needs: 200}).task_retention_s == 200


def test_unless_it_is_set_a_task_is_kept_for_as_long_as_it_has_to_be():
    assert load({"dead_retention_s": 9_000_000}).task_retention_s == 9_000_000
    assert load().task_retention_s == 90 * 86_400


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_what_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(BadInput, match=r"task_retention_s.*finite"):
        load({"task_retention_s": value})


def test_an_unknown_setting_in_the_file_is_named(place):
    (place / CONFIG_FILE).write_text("slot = 5\n")

    with pytest.raises(BadInput, match=r"no setting 'slot'; did you mean 'slots'\?"):
        load()


def test_an_unknown_flag_is_named():
    with pytest.raises(BadInput, match=r"no setting 'slot'; did you mean 'slots'\?"):
        load({"slot": 5})


@pytest.mark.parametrize("text", [" 50 ", "50\n", "+50", "050"])
def test_a_number_may_be_written_as_files_of_variables_have_it(monkeypatch, text):
    monkeypatch.setenv("PUSHLANE_SLOTS", text)
    monkeypatch.setenv("PUSHLANE_RETENTION_S", text)

    assert (load().slots, load().retention_s) == (50, 50.0)


@pytest.mark.parametrize(
    ("given", "value"), [("off", "off"), ("60", 60.0), (" 70\n", 70.0), (5, 5.0)]
)
def test_a_word_may_stand_in_place_of_a_number(given, value):
    assert load({"loop_patience_s": given}).loop_patience_s == value


@pytest.mark.parametrize("given", ["0", "of", False, "90000", "nan"])
def test_neither_the_word_nor_such_a_number_is_refused(given):
    with pytest.raises(BadInput, match="loop_patience_s="):
        load({"loop_patience_s": given})


def test_another_process_gets_the_same_settings(place, monkeypatch):
    settings = load({"slots": 7, "pulsar_token": "hush", "data_dir": "x", "receipts": "off"})
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)

    assert load() == settings


def test_a_secret_may_be_any_word(place):
    assert load({"pulsar_token": "nan"}).pulsar_token.reveal() == "nan"


def test_a_wrong_value_says_which_variable_it_came_from(monkeypatch):
    monkeypatch.setenv("PUSHLANE_SLOTS", "many")

    with pytest.raises(BadInput, match=r"slots='many' \(from PUSHLANE_SLOTS\)"):
        load()


@pytest.mark.parametrize(
    "line",
    [
        'pulsar_tokn = "hush-hush"',
        'pulsar_token = ["hush-hush"]',
        'broker = "kafka://me:hush-hush@host"',
    ],
)
def test_a_wrong_setting_that_may_be_secret_is_named_without_its_value(place, line):
    (place / CONFIG_FILE).write_text(line)

    with pytest.raises(BadInput) as refused:
        load()

    assert line.split()[0] in str(refused.value)
    assert "hush-hush" not in str(refused.value)


def test_a_file_that_is_no_toml_is_named(place):
    (place / CONFIG_FILE).write_text("slots = = 5\n")

    with pytest.raises(BadInput, match=CONFIG_FILE):
        load()


def test_settings_do_not_change():
    settings = load()

    with pytest.raises(AttributeError):
        settings.slots = 5


def test_a_token_is_not_shown():
    assert "hush-hush" not in repr(load({"pulsar_token": "hush-hush"}))


def test_a_variable_that_nearly_names_a_setting_is_told_and_no_other(monkeypatch):
    for name in ("PUSHLANE_SLOT", "PUSHLANE_PORT", "PUSHLANE_SERVICE_HOST", "PUSHLANE_CONFIG"):
        monkeypatch.setenv(name, "5")

    [told] = misspelt_variables()

    assert (
        told == "PUSHLANE_SLOT is not a setting, and changes nothing; did you mean PUSHLANE_SLOTS?"
    )
