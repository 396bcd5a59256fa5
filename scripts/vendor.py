"""Fetches the front-end files that lie in the clone again from npm, each as its hash says.

What is fetched, and the SHA-256 of each file, is in `vendored.json`, beside the files. A new
version: write it there, run this with `--renew`, which writes the new hashes, and read what it
prints.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parent.parent
LISTS = (
    ROOT / "pushlane/console/static/vendor/vendored.json",
    ROOT / "tests/browser/vendor/vendored.json",
)


class Package(msgspec.Struct):
    """A package of npm, and the files taken from it: where each is there, and its SHA-256."""

    version: str
    license: str
    files: dict[str, str]


class Vendored(NamedTuple):
    """A file that lies in the clone, and the hash that it has to have."""

    path: Path
    sha256: str


def listed(at: Path) -> dict[str, Package]:
    """Return the packages of a list, by their names."""
    return msgspec.json.decode(at.read_bytes(), type=dict[str, Package])


def _place(at: Path, name: str, path: str) -> Path:
    """Return where a file of a package lies: all of a list beside it, licences by their package."""
    there = Path(path).name
    return at.parent / (f"{name}.{there}" if there == "LICENSE" else there)


def vendored() -> Iterator[Vendored]:
    """Yield every file that lies in the clone."""
    for at in LISTS:
        for name, package in listed(at).items():
            for path, digest in package.files.items():
                yield Vendored(_place(at, name, path), digest)


def _fetched(name: str, package: Package) -> dict[str, bytes]:
    """Return the files of a package, as npm has them now."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{name}@{package.version}"
        command = ["npm", "pack", "--silent", "--pack-destination", folder, wanted]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [packed] = Path(folder).iterdir()
        with tarfile.open(packed) as archive:
            found = {path: archive.extractfile(f"package/{path}") for path in package.files}
            return {path: file.read() for path, file in found.items() if file is not None}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--renew", action="store_true", help="Write the hashes of what is fetched.")
    renew = parser.parse_args().renew
    wrong = 0
    for at in LISTS:
        packages = listed(at)
        for name, package in packages.items():
            for path, content in _fetched(name, package).items():
                digest = sha256(content).hexdigest()
                if digest != package.files[path] and not renew:
                    sys.stderr.write(f"error: {name} {path} is {digest}: it was left as it is\n")
                    wrong += 1
                    continue
                package.files[path] = digest
                _place(at, name, path).write_bytes(content)
                sys.stdout.write(f"{name} {package.version} {path} {digest}\n")
        at.write_bytes(msgspec.json.format(msgspec.json.encode(packages), indent=2) + b"\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
