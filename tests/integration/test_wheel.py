"""What is installed is one package, beside an application whose own folders have our names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PARTS = ("core", "backends", "dispatcher", "producers", "diagnosis", "pipeline", "cli")
_APPLICATION = """
import pushlane
from pushlane import Client, Dispatcher, Producer
import backends, cli, core, dispatcher, pipeline, producers

print(pushlane.__file__)
print(*(module.MINE for module in (backends, cli, core, dispatcher, pipeline, producers)))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, as it lies in site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("pushlane", "dev", "bench"):
        shutil.copytree(_ROOT / name, source / name, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run([*command, *options], check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run(installed: Path, folder: Path, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    ended = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return ended.stdout.splitlines()


def test_nothing_but_pushlane_is_put_into_site_packages(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}

    assert names == {"pushlane"}


def test_an_application_may_have_folders_with_the_names_of_our_parts(
    installed: Path, tmp_path: Path
) -> None:
    for name in _PARTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"MINE = 'my {name}'\n")

    where, mine = run(installed, tmp_path, "-c", _APPLICATION)

    assert Path(where).is_relative_to(installed)
    assert mine == "my backends my cli my core my dispatcher my pipeline my producers"


def test_the_templates_of_reports_are_in_it(installed: Path) -> None:
    assert (installed / "pushlane/pipeline/reports/templates/report.html").is_file()


def test_it_runs_as_a_module(installed: Path, tmp_path: Path) -> None:
    [version] = run(installed, tmp_path, "-m", "pushlane", "--version")

    assert version.startswith("pushlane ")


@pytest.mark.parametrize("name", ["demo", "up", "down"])
def test_a_command_of_a_clone_says_that_it_needs_one(
    installed: Path, tmp_path: Path, name: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pushlane", name, "--out", "here"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert f"`pushlane {name}` is in the folder dev/ of a clone" in line
    assert "pip install -e '.[dev]'" in line
    assert ran.stdout == ("false\n" if name == "up" else "")  # so that `eval` of it fails too
