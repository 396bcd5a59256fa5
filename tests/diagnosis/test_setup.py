"""Live processes that do not fit together, and settings that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.operations import Live
from pushlane.core.errors import UnknownFormat
from pushlane.core.push import FORMAT
from pushlane.diagnosis.setup import CHECKS, SETTINGS, Setup
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings
from pushlane.util.checks import Fact, Finding, examined
from pushlane.util.errors import DamagedRecord
from pushlane.version import VERSION
from tests.diagnosis.support import task_of

_SETTINGS = Settings(sink="log:out")


def _process(**given: Any) -> Process:
    usual = {"id": "a1", "kind": "dispatcher", "pid": 7, "version": VERSION, "format": FORMAT}
    return Process(**usual | given)


def _setup(
    *processes: Process,
    later: tuple[Process, ...] | None = None,
    lowest: int = FORMAT,
    settings: Settings = _SETTINGS,
    sinks: dict[str, str] | None = None,
    **more: Any,
) -> Setup:
    again = processes if later is None else later
    live = Live(Fact(list(processes)), Fact(list(again)), Fact(lowest))
    return Setup(settings, live, sinks or {}, **more)


def _found(setup: Setup) -> list[Finding]:
    return examined(CHECKS, setup).findings


def test_processes_and_settings_that_fit_pass_each_check() -> None:
    result = examined(CHECKS, _setup(_process(), _process(id="b2", pid=8)))

    assert (result.findings, result.skipped) == ([], {})


def test_processes_of_another_version_are_named() -> None:
    [finding] = _found(_setup(_process(), _process(id="old", pid=9, version="0.1.0")))

    assert (finding.check, finding.severity) == ("versions", "warning")
    assert "0.1.0: old (pid 9)" in finding.what


@pytest.mark.parametrize(
    ("reads", "lowest", "severity"),
    [(FORMAT - 1, FORMAT, "error"), (FORMAT, FORMAT + 1, "error"), (FORMAT, FORMAT - 1, "note")],
)
def test_formats_that_do_not_fit(reads: int, lowest: int, severity: str) -> None:
    [finding] = _found(_setup(_process(format=reads), lowest=lowest))

    assert (finding.check, finding.severity) == ("formats", severity)


def test_two_processes_of_one_id_take_turns_in_being_seen() -> None:
    one, other = _process(started_at_ms=1), _process(pid=8, started_at_ms=2)

    [finding] = _found(_setup(one, later=(other,)))

    assert finding.what == "two processes call themselves a1 (pids 7 and 8)"
    assert _found(_setup(one, later=(_process(started_at_ms=1, lanes=5),))) == []
    assert _found(_setup(one, later=(_process(id="new", pid=8),))) == []


@pytest.mark.parametrize(
    ("check", "severity", "changes"),
    [
        ("claims", "error", {"sink_timeout_s": 600.0, "drain_timeout_s": 600.0}),
        ("drain", "warning", {"drain_timeout_s": 5.0}),
        ("retries", "warning", {"retry_first_s": 60.0, "retry_longest_s": 10.0}),
        ("null-sink", "note", {"sink": "null"}),
    ],
)
def test_settings_that_contradict_each_other(check: str, severity: str, changes: Any) -> None:
    [finding] = _found(_setup(settings=_SETTINGS.but(**changes)))

    assert (finding.check, finding.severity) == (check, severity)
    assert finding.mend


def test_a_sink_counts_with_its_own_time() -> None:
    slow = {"mail": SinkSettings(kind="null", timeout_s=100.0)}

    [finding] = _found(_setup(settings=Settings(sinks=slow)))

    assert "a delivery at sink mail may take 100 s" in finding.what


def test_a_sink_that_cannot_be_opened() -> None:
    [finding] = _found(_setup(sinks={"default": "", "mail": "sink mail: token is empty"}))

    assert (finding.what, finding.mend) == ("sink mail: token is empty", "pushlane sinks test mail")


def test_a_file_of_credentials_that_others_can_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o644)
    sinks = {"mail": SinkSettings(kind="webhook", options={"token_file": str(key)})}

    [finding] = _found(_setup(settings=Settings(sinks=sinks)))

    assert finding.mend == f"chmod 600 {key}"


def test_settings_that_cannot_be_used_are_a_finding() -> None:
    assert [one.what for one in examined((SETTINGS,), "slots is none").findings] == [
        "slots is none"
    ]
    assert examined((SETTINGS,), "").findings == []


@pytest.mark.parametrize(
    ("fault", "newer", "severity"),
    [
        (DamagedRecord("task t1", "quota", "remove it: pushlane forget t1 --force"), [], "error"),
        (
            DamagedRecord("task t1", "quota", "remove it: pushlane forget t1 --force"),
            ["p"],
            "error",
        ),
        (UnknownFormat(99, "task t1"), [], "error"),
        (UnknownFormat(99, "task t1"), ["p9"], "note"),
    ],
)
def test_what_cannot_be_read_is_an_error_unless_a_newer_process_reads_it(
    fault: UnknownFormat, newer: list[str], severity: str
) -> None:
    none: Fact[list[Process]] = Fact([])
    live = Live(none, none, Fact(FORMAT), Fact(newer), Fact([fault]))

    [finding] = _found(Setup(_SETTINGS, live, {}))

    assert (finding.check, finding.severity) == ("records", severity)
    assert "task t1" in finding.what
    assert finding.mend in ("pushlane forget t1 --force", "upgrade this process")


def test_of_very_many_the_first_are_listed_and_the_others_counted() -> None:
    none: Fact[list[Process]] = Fact([])
    faults = [UnknownFormat(99, f"task t{number}") for number in range(50)]
    live = Live(none, none, Fact(FORMAT), Fact([]), Fact(faults))

    found = _found(Setup(_SETTINGS, live, {}))

    assert (len(found), found[-1].what) == (21, "30 more cannot be read")


_WEBHOOK = SinkTarget("webhook", "push.example.com", "01")
_STAGING = SinkTarget("webhook", "staging.example.com", "02")
_NULL = SinkTarget("null", "", "03", delivers=False)


def _serving(process_id: str, target: SinkTarget | None, **stands: Any) -> Process:
    served = (ServedSink(name="default", target=target, **stands),)
    return _process(id=process_id, serves=("default",), served=served)


def test_a_live_sink_that_delivers_nothing_is_named_whatever_these_settings_say() -> None:
    [finding] = _found(_setup(_serving("a1", _NULL)))

    assert (finding.check, finding.severity) == ("null-sink", "note")
    assert finding.what == "sink default is null, which delivers nothing, in a1 (pid 7)"


def test_settings_without_a_sink_are_no_finding_where_live_processes_have_one() -> None:
    assert _found(_setup(_serving("a1", _WEBHOOK), settings=Settings())) == []


@pytest.mark.parametrize(
    ("other", "severity"), [(_STAGING, "warning"), (_NULL, "error"), (_WEBHOOK, None), (None, None)]
)
def test_two_targets_of_a_sink(other: SinkTarget | None, severity: str | None) -> None:
    found = _found(_setup(_serving("a1", _WEBHOOK), _serving("b2", other)))

    split = [one.severity for one in found if one.check == "sink-targets"]
    assert split == ([severity] if severity else [])


def test_settings_that_lead_elsewhere_than_the_live_processes() -> None:
    [finding] = _found(_setup(_serving("a1", _WEBHOOK), mine={"default": _STAGING}))

    assert (finding.check, finding.severity) == ("shell-sinks", "note")
    assert "staging.example.com" in finding.what
    assert "push.example.com by a1 (pid 7)" in finding.what
    assert _found(_setup(_serving("a1", _WEBHOOK), mine={"default": _WEBHOOK})) == []


def test_a_sink_that_rests_everywhere() -> None:
    shut = Resting("sink default (open)", 1_000, "connection refused", 9_000)
    eased = Resting("sink default (recovering)", 1_000, "connection refused", 9_000)

    [finding] = _found(_setup(_serving("a1", _WEBHOOK, resting=shut)))

    assert (finding.check, finding.severity) == ("resting-sinks", "error")
    assert finding.what.startswith("sink default rests: connection refused, since ")
    assert _found(_setup(_serving("a1", _WEBHOOK, resting=eased))) == []
    well = _serving("b2", _WEBHOOK)
    assert _found(_setup(_serving("a1", _WEBHOOK, resting=shut), well)) == []


def test_tasks_whose_sink_nobody_serves() -> None:
    named = Settings(sinks={"sms": SinkSettings(kind="null")}, sink="log:out")
    tasks = Fact([task_of("t1", sinks=("sms",)), task_of("t2", sinks=("sms",)), task_of("t3")])

    [finding] = _found(_setup(_serving("a1", _WEBHOOK), settings=named, tasks=tasks))

    assert (finding.check, finding.severity) == ("unserved-sinks", "warning")
    assert finding.what == "2 tasks wait for sink sms, which nobody serves, such as t1"
    assert finding.mend == "pushlane dispatch --serve sms"
