"""Marked rows through Spark: fan-outs that fail, the receipts job, its store and reports.

Left out, as they hold pushes by design: the database of the embedded store, and what a fan-out has
frozen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.canary import Canaries, contents, leaks
from tests.processes import Pushlane

HOLD_PUSHES = ("store/pushlane.db*", "store/fanout/**/*")
GIVEN = ("people.parquet", "*.toml", "*.jsonl")
SPARK = ("--master", "local[1, 1]", "--memory", "1g")
FIELDS = ("recipient", "name", "zone")
FAILING = {
    "a cast that fails": ("CAST(recipient AS INT) > 0", ""),
    "an error that names a row": ("raise_error(concat(recipient, name)) IS NULL", ""),
    "SQL that is none": ("recipient == ==", ""),
    "a zone that is none": ("true", 'zone_column = "zone"\nquiet = "22:00-08:00"\n'),
}

pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def pushlane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canaries: Canaries
) -> Iterator[Pushlane]:
    """With a table of marked rows, and a folder of its own for what is temporary."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    rows = [{field: f"{canaries.value(field)}{n}" for field in FIELDS} for n in range(5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "people.parquet")
    commands = Pushlane(tmp_path, {"broker": "embedded", "data_dir": str(tmp_path / "store")})
    yield commands
    commands.end_all()


def fanned_out(pushlane: Pushlane, where: str, more: str) -> dict[str, str | bytes]:
    """What a fan-out said, and left."""
    spec = pushlane.folder / "task.toml"
    spec.write_text(f'level = "high"\ntitle = "Hi {{name}}"\n{more}')
    audience = pushlane.folder / "people.parquet"
    asked = ("fanout", "--audience", audience, "--where", where, "--task-spec", spec, "--debug")
    ran = pushlane.ran(*asked, *SPARK)
    said = {"exit": str(ran.exit_code), "stdout": ran.stdout, "stderr": ran.stderr}
    return said | contents(pushlane.folder, (*HOLD_PUSHES, *GIVEN))


@pytest.mark.parametrize(("where", "more"), FAILING.values(), ids=FAILING)
def test_a_fan_out_that_fails_names_no_row(
    pushlane: Pushlane, canaries: Canaries, where: str, more: str
) -> None:
    said = fanned_out(pushlane, where, more)

    assert said["exit"] != "0"
    assert "error: " in said["stderr"]
    assert "Traceback" in said["stderr"]
    assert leaks(canaries, said) == {}


def test_receipts_and_reports_have_no_recipient_and_no_content(
    pushlane: Pushlane, canaries: Canaries
) -> None:
    said = fanned_out(pushlane, "true", "")
    assert said["exit"] == "0", said["stderr"]
    pushlane.drain("null")
    for words in ("pipeline run --until-idle", "pipeline status --json"):
        ran = pushlane.ran(*words.split(), *(SPARK if "run" in words else ()))
        assert ran.exit_code == 0, ran.stderr
        said[words] = ran.stdout + ran.stderr
    said["rows"] = pushlane("report", "--since", "1h", "--rows", "--json")
    html = pushlane.folder / "report.html"
    said["html"] = pushlane("report", "--since", "1h", "--by", "reason", "--html", html)
    tables = (pushlane.folder / "store" / "reports").rglob("*.parquet")
    said |= {
        f"table {n}": json.dumps(pq.ParquetFile(path).read().to_pylist(), default=repr)
        for n, path in enumerate(tables)
    }

    assert "…" in said["table 0"] + said["rows"]
    assert leaks(canaries, said | contents(pushlane.folder, (*HOLD_PUSHES, *GIVEN))) == {}
