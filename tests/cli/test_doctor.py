"""`doctor` and `stats-dump` on an embedded store, and what they say of settings and sinks."""

from __future__ import annotations

import gzip
import json
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pushlane.backends.operations import Bounds
from pushlane.cli import doctor
from pushlane.core.errors import BadInput, Unreachable
from pushlane.diagnosis import host
from pushlane.operations.examining import all_checks
from pushlane.settings import Settings
from pushlane.util.checks import SEVERITIES, Check, Examination, Finding, Remark
from pushlane.util.files import create_durably
from tests.canary import Canaries
from tests.command import Command
from tests.house.test_house import DOCS

Wrong = Callable[..., None]


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Wrong:
    """Makes the host have these faults, each of a check of its own; by itself it has none."""

    def have(*remarks: Remark) -> None:
        checks = [
            Check(f"check-{n}", "host", "it", "it hurts", lambda _, one=remark: [one])
            for n, remark in enumerate(remarks)
        ]
        monkeypatch.setattr(host, "CHECKS", checks)

    have()
    return have


def test_a_sound_deployment_ends_with_0_and_a_line_of_counts(
    command: Command, wrong: Wrong
) -> None:
    command.submit()

    ran = command("doctor")

    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[-1] == "0 errors, 0 warnings, 1 note"
    assert "null-sink" in ran.stdout


def test_where_there_is_no_store_doctor_says_so_and_makes_none(
    command: Command, wrong: Wrong
) -> None:
    ran = command("doctor", "--data-dir", "elsewhere")

    assert ran.exit_code == 3
    assert f"there is no pushlane store in {command.folder / 'elsewhere'}" in ran.stdout
    assert not (command.folder / "elsewhere").exists()


@pytest.mark.parametrize(
    ("severities", "code"), [(["note"], 0), (["warning", "note"], 4), (["warning", "error"], 1)]
)
def test_the_worst_finding_makes_the_exit_code(
    command: Command, wrong: Wrong, severities: list, code: int
) -> None:
    wrong(*(Remark(severity, f"it is {severity}", "mend it") for severity in severities))

    ran = command("doctor", "--json")

    assert (ran.exit_code, ran.json["exit_code"]) == (code, code)


def test_people_read_the_worst_first_with_why_and_what_mends_it(
    command: Command, wrong: Wrong
) -> None:
    wrong(Remark("note", "a small thing"), Remark("error", "a\x1b[2J large one", "do this"))

    lines = command("doctor").stdout.splitlines()

    assert lines[:5] == [
        f"looked   in {command.folder / 'data'}",
        "error    check-1",
        "         a [2J large one",
        "  why    it hurts",
        "  fix    do this",
    ]
    assert "         a small thing" in lines


def test_programs_read_one_document_with_these_keys(command: Command, wrong: Wrong) -> None:
    wrong(Remark("warning", "it is", "mend it"))

    shown = command("doctor", "--json").json

    assert list(shown) == ["version", "findings", "ok", "skipped", "store", "fixed", "exit_code"]
    assert shown["findings"][0] == {
        "check": "check-0",
        "area": "host",
        "severity": "warning",
        "what": "it is",
        "why": "it hurts",
        "mend": "mend it",
        "can_fix": False,
        "target": [],
        "destroys": False,
    }
    assert set(shown["ok"]) >= {"settings", "versions", "claims", "sinks"}
    assert shown["store"] == f"in {command.folder / 'data'}"


@pytest.mark.parametrize(
    ("broker", "checks"),
    [("pulsar://127.0.0.1:1", {"broker", "admin-rest", "redis"}), ("embedded", set())],
)
def test_services_that_do_not_answer_are_findings(
    command: Command, wrong: Wrong, monkeypatch: pytest.MonkeyPatch, broker: str, checks: set
) -> None:
    monkeypatch.setattr("pushlane.backends.pulsar.facts.CLIENT_S", 0.5)
    urls = ("--admin-url", "http://127.0.0.1:2", "--redis-url", "redis://127.0.0.1:3/0")

    ran = command("doctor", "--json", "--broker", broker, *urls)

    assert {one["check"] for one in ran.json["findings"] if one["severity"] == "error"} == checks
    assert ran.exit_code == (3 if checks else 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--broker", "http://x"), "setting broker='http://x'"),
        (("--broker", "pulsar://127.0.0.1:1", "--redis-url", "x://y"), "redis_url 'x://y'"),
        (("--broker", "pulsar://127.0.0.1:1", "--namespace", "abc"), "namespace 'abc'"),
    ],
)
def test_settings_of_no_use_are_a_finding(
    command: Command, wrong: Wrong, options: tuple[str, ...], says: str
) -> None:
    ran = command("doctor", "--json", *options)

    [finding] = [one for one in ran.json["findings"] if one["severity"] == "error"]
    assert (ran.exit_code, finding["check"]) == (1, "settings")
    assert says in finding["what"]


def test_a_sink_without_its_credentials_is_a_finding_and_shows_none(
    command: Command, wrong: Wrong
) -> None:
    canaries = Canaries()
    command.file(
        "pushlane.toml",
        '[sinks.phones]\nkind = "fcm"\ncredentials_file = "missing.json"\n'
        f'[sinks.hook]\nkind = "webhook"\nurl = "no url {canaries.word("url")}"\n',
    )

    ran = command("doctor", "--json")

    problems = [one["what"] for one in ran.json["findings"] if one["check"] == "sinks"]
    assert len(problems) == 2
    assert "missing.json" in problems[0]
    assert canaries.found_in(ran.stdout + ran.stderr) == []


def _fixable(**more: object) -> Finding:
    given = {"check": "c", "area": "a", "severity": "error", "what": "w", "why": "y"}
    return Finding(**given | {"can_fix": True, "target": ("x",)} | more)  # type: ignore[arg-type]


def test_of_what_destroys_something_nobody_is_asked_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not doctor._is_agreed(_fixable(destroys=True), yes=False)
    assert "add --yes" in capsys.readouterr().err
    assert doctor._is_agreed(_fixable(destroys=True), yes=True)
    assert doctor._is_agreed(_fixable(), yes=False)
    assert not doctor._is_agreed(_fixable(can_fix=False), yes=True)


async def test_what_is_refused_is_tried_once_more_and_a_service_that_is_away_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [BadInput("too soon"), "", BadInput("no"), "", Unreachable("away")]
    asked = []

    class Examiner:
        async def mend(self, settings: Settings, finding: Finding) -> str:
            asked.append(finding.target[0])
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return f"{finding.target[0]} is mended"

    async def look(*_: object) -> tuple[Examination, None]:
        return Examination([], [], {}), None

    monkeypatch.setattr(doctor, "examiner_of", lambda _: Examiner())
    monkeypatch.setattr(doctor, "examine", look)
    findings = [_fixable(target=(name,)) for name in "abc"]

    _, done = await doctor._fixed(Settings(), Bounds(), findings)

    assert asked == ["a", "b", "c", "a", "c"]
    assert done == ["b is mended", "a is mended"]
    assert capsys.readouterr().err == "not fixed: c: away\n"


@pytest.fixture
def dump(command: Command, wrong: Wrong) -> Iterator[Callable[[str], dict]]:
    def make(name: str) -> dict:
        ran = command("stats-dump", name)
        assert ran.exit_code == 0, ran.stderr
        path = command.folder / name
        if name.endswith(".json.gz"):
            return json.loads(gzip.decompress(path.read_bytes()))
        with tarfile.open(path) as tar:
            return {
                Path(one.name).stem: json.load(tar.extractfile(one))  # type: ignore[arg-type]
                for one in tar.getmembers()
            }

    return make


@pytest.mark.parametrize("name", ["all.tar.gz", "all.json.gz"])
def test_a_dump_has_all_and_is_its_owners_alone(command: Command, dump, name: str) -> None:
    command.submit()

    documents = dump(name)

    assert list(documents) == ["settings", "versions", "doctor", "processes", "store"]
    assert documents["settings"]["slots"] == {"value": 50, "from": "default"}
    assert documents["versions"]["packages"]["msgspec"]
    assert documents["doctor"]["ok"]
    assert stat.S_IMODE((command.folder / name).stat().st_mode) == 0o600


def test_a_dump_says_how_large_it_is(command: Command, wrong: Wrong) -> None:
    ran = command("stats-dump", "all.json.gz", "--json")

    assert ran.json == {
        "file": "all.json.gz",
        "bytes": (command.folder / "all.json.gz").stat().st_size,
        "documents": ["settings", "versions", "doctor", "processes", "store"],
    }


def test_a_dump_holds_no_secret_recipient_or_payload(
    command: Command, dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    canaries = Canaries()
    rows = command.file(
        "people.csv", f"recipient,note\n{canaries.word('to')},{canaries.word('text')}\n"
    )
    command("submit", rows, "--title", canaries.word("title"), "--name", canaries.word("name"))
    monkeypatch.setenv("PUSHLANE_PULSAR_TOKEN", canaries.word("token"))
    monkeypatch.setenv("PUSHLANE_RECEIPTS_KEY", canaries.word("key"))
    monkeypatch.setenv("PUSHLANE_REDIS_URL", f"redis://me:{canaries.word('password')}@h:1/0")
    monkeypatch.setenv("PUSHLANE_SINK", f"webhook:http://127.0.0.1:1/{canaries.word('T0')}")
    toml = f'[sinks.hook]\nkind = "webhook"\nurl = "http://h/{canaries.word("X1")}"\n'
    command.file("pushlane.toml", f'{toml}secret = "{canaries.word("secret")}"\n')

    documents = dump("all.json.gz")

    assert canaries.found_in(json.dumps(documents)) == []
    assert "hook" in json.dumps(documents)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("all.zip", "ends in neither .tar.gz nor .json.gz"),
        ("there.tar.gz", "is there already and is left as it is"),
        ("nowhere/all.tar.gz", "there is no folder nowhere"),
    ],
)
def test_a_file_that_cannot_be_made_is_refused_before_anything_is_asked(
    command: Command, wrong: Wrong, name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "examine", None)
    there = command.file("there.tar.gz", "mine")

    ran = command("stats-dump", name)

    assert (ran.exit_code, says in ran.stderr) == (1, True)
    assert there.read_text() == "mine"


@pytest.mark.parametrize("at", ["examine", "create_durably"])
def test_an_interrupted_dump_leaves_nothing(
    command: Command, wrong: Wrong, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, at, interrupt)
    before = set(command.folder.iterdir())

    assert command("stats-dump", "all.tar.gz").exit_code == 130
    assert set(command.folder.iterdir()) == before


def test_one_that_somebody_makes_meanwhile_is_left_as_it_is(
    command: Command, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(path: Path, content: bytes, mode: int) -> None:
        path.write_text("theirs")
        create_durably(path, content, mode)

    monkeypatch.setattr(doctor, "create_durably", late)

    assert command("stats-dump", "all.tar.gz").exit_code == 1
    assert (command.folder / "all.tar.gz").read_text() == "theirs"


def test_each_check_has_one_name_and_says_what_and_why() -> None:
    checks = all_checks()

    assert len({check.name for check in checks}) == len(checks)
    assert all(check.looks_at and check.why for check in checks)


def test_the_page_of_checks_says_how_severe_findings_are() -> None:
    text = (DOCS / "doctor.md").read_text()

    assert all(f"**{severity}**" in text for severity in SEVERITIES)
