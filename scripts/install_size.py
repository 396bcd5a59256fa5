"""Measures how large a plain install is: the clone, without extras, at the versions of the pins.

    python -m scripts.install_size

Makes a venv in a temporary folder and prints the total and the largest packages, with the bytecode
that pip makes of them. pip and setuptools, which belong to the venv and to building, do not count.
Ends with 1 over the limit.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from scripts.shape import ROOT

LIMIT_MB = 100
_SHOWN = 10
_NOT_OURS = {"pip", "setuptools"}
_MB = 1_000_000


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pushlane-size-") as folder:
        sizes = sorted(_sizes(_installed(Path(folder))), reverse=True)
    total = sum(size for size, _ in sizes)
    sys.stdout.write(report(sizes) + "\n")
    return 1 if total > LIMIT_MB * _MB else 0


def report(sizes: list[tuple[int, str]]) -> str:
    """Return the total and the largest packages, in MB; `sizes` are in bytes, largest first."""
    total = sum(size for size, _ in sizes) / _MB
    lines = [f"{total:7.1f} MB in {len(sizes)} packages (limit {LIMIT_MB})"]
    return "\n".join(lines + [f"{size / _MB:7.1f} {name}" for size, name in sizes[:_SHOWN]])


def _installed(folder: Path) -> Path:
    """Install the clone into a venv in the folder; return its site-packages."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pins = str(ROOT / "requirements/base.txt")
    subprocess.run([*pip, "--require-hashes", "-r", pins], check=True)
    source = _copied(folder / "source")  # building leaves files beside the sources
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(source)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    return packages


def _copied(source: Path) -> Path:
    shutil.copytree(ROOT / "pushlane", source / "pushlane")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


def _sizes(packages: Path) -> Iterator[tuple[int, str]]:
    for found in distributions(path=[str(packages)]):
        if found.name not in _NOT_OURS:
            yield _size(found), f"{found.name} {found.version}"


def _size(found: Distribution) -> int:
    """The bytes of its files, compiled ones too."""
    files = [Path(str(file.locate())) for file in found.files or ()]
    return sum(file.stat().st_size for file in files if file.exists())


if __name__ == "__main__":
    sys.exit(main())
