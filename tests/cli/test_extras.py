"""A missing extra is told as such; a defect of ours is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pushlane.cli.errors import pipeline_extra
from pushlane.core.errors import BadInput
from tests.command import make_store


def missing(module: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {module!r}", name=module)


def test_a_missing_package_says_what_to_install():
    with pytest.raises(BadInput, match=r"package pyspark.* install") as error, pipeline_extra():
        raise missing("pyspark.sql")

    assert "'pushlane[pipeline]'" in str(error.value)


def test_a_missing_module_of_ours_is_a_defect():
    with pytest.raises(ModuleNotFoundError), pipeline_extra():
        raise missing("pushlane.pipeline.nothing")


_ROOT = Path(__file__).parents[2]
_WITHOUT = """
import sys

sys.modules["pyarrow"] = sys.modules["google.auth"] = None  # as where they are not installed
"""
_WALK = """
import importlib, pkgutil
import pushlane

wanting = set()
for module in pkgutil.walk_packages(pushlane.__path__, "pushlane."):
    if module.name != "pushlane.__main__":
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            wanting.add(f"{error.name.partition('.')[0]}:{module.name}")
print(*sorted(wanting))
"""
_RUN = """
from pushlane.cli.main import main

main()
"""
_SUBMIT = """
import asyncio
from pathlib import Path
from pushlane import BadInput, Client, SubmitRequest

async def submit():
    async with Client() as client:
        await client.submit(SubmitRequest(source=Path("rows.parquet"), level="low", title="Hi"))

try:
    asyncio.run(submit())
except BadInput as error:
    print(error)
"""
_NEEDED = (
    "rows.parquet needs the package pyarrow, of the extra `parquet`: "
    "pip install 'pushlane[parquet]' (in a clone: pip install '.[parquet]')"
)


def without_extras(folder: Path, code: str, words: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT + code, *words.split()],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "PUSHLANE_DATA_DIR": "store"},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    (tmp_path / "rows.csv").write_text("recipient\nuser-1\n")
    return tmp_path


def test_nothing_but_parquet_the_pipeline_and_fcm_need_an_extra(tmp_path: Path) -> None:
    walked = without_extras(tmp_path, _WALK)

    assert walked.returncode == 0, walked.stderr
    wanting = set(walked.stdout.split())
    assert {name for name in wanting if ":pushlane.pipeline." not in name} == {
        "pyarrow:pushlane.producers.parquet_rows",
        "pyarrow:pushlane.spark",
        "google:pushlane.dispatcher.sinks.fcm",
        "google:pushlane.dispatcher.sinks.google",
    }


@pytest.mark.parametrize(
    "words",
    [
        "submit rows.parquet --level low --title Hi",
        "submit rows.parquet --level low --title Hi --dry-run",
        "suppress add rows.parquet",
        "tokens register rows.parquet --sink fcm",
    ],
)
def test_a_command_with_a_parquet_file_says_what_to_install(folder: Path, words: str) -> None:
    ran = without_extras(folder, _RUN, words)

    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"error: {_NEEDED}\n")


def test_results_joined_with_a_parquet_file_say_what_to_install(folder: Path) -> None:
    for done in (
        "submit rows.csv --level low --title Hi --key news",
        "dispatch --drain --sink null",
    ):
        assert without_extras(folder, _RUN, done).returncode == 0

    ran = without_extras(folder, _RUN, "results news --csv --join rows.parquet")

    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, f"error: {_NEEDED}")


def test_a_program_is_told_the_same(folder: Path) -> None:
    assert without_extras(folder, _SUBMIT).stdout == f"{_NEEDED}\n"


def test_what_is_wrong_with_the_file_itself_comes_first(folder: Path) -> None:
    ran = without_extras(folder, _RUN, "suppress add nothing.parquet")

    assert ran.stderr == "error: nothing.parquet does not exist; check the path\n"


def test_a_command_of_the_pipeline_names_its_extra(folder: Path) -> None:
    ran = without_extras(folder, _RUN, "pipeline status")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "error: this needs the package pyarrow, of the extra `pipeline`: "
        "pip install 'pushlane[pipeline]' (in a clone: pip install '.[pipeline]')\n"
    )


def test_rules_name_the_extra_and_alerts_need_none_but_to_be_measured(folder: Path) -> None:
    hidden = 'import sys\nfor name in ("pydantic", "cronsim", "duckdb"): sys.modules[name] = None\n'
    alert = "failing --metric dead --when >5 --to https://hooks.example.com/alerts"

    for words in ("rules list", "rules pause weekly", "alerts test failing"):
        assert (
            without_extras(folder, hidden + _RUN, f"alerts add {alert} --replace").returncode == 0
        )
        ran = without_extras(folder, hidden + _RUN, words)

        assert (ran.returncode, ran.stdout) == (1, "")
        assert "of the extra `pipeline`: pip install 'pushlane[pipeline]'" in ran.stderr
    listed = without_extras(folder, hidden + _RUN, "alerts list")
    assert (listed.returncode, "failing" in listed.stdout) == (0, True)


def test_a_sink_of_fcm_says_what_to_install(folder: Path) -> None:
    (folder / "pushlane.toml").write_text('[sinks.app]\nkind = "fcm"\n')

    ran = without_extras(folder, _RUN, "dispatch --config pushlane.toml --serve app --drain")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-1] == (
        "error: sink app, of the kind fcm, needs the package google-auth, of the extra `fcm`: "
        "pip install 'pushlane[fcm]' (in a clone: pip install '.[fcm]')"
    )
