"""The Java that Spark will run on: found the way Spark finds it, and checked before Spark fails.

It starts nothing but `java -version`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pushlane.lanes.errors import BadInput

_LEAST = 17
_DEADLINE_S = 30.0
_HOW_TO_GET_IT = (
    f"install a Java runtime, version {_LEAST} or newer (Debian: apt-get install "
    "default-jre-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one"
)


def require_java() -> None:
    """Raises BadInput when there is no Java that Spark can run on, with how to get one."""
    java = _java()
    if not java:
        raise BadInput(f"Spark needs Java, and there is none: {_HOW_TO_GET_IT}")
    found = _major_version(java)
    if not found:
        raise BadInput(f"{java} does not say a version of Java: {_HOW_TO_GET_IT}")
    if found < _LEAST:
        raise BadInput(f"Java {found} ({java}) is too old for Spark: {_HOW_TO_GET_IT}")


def _java() -> str:
    """JAVA_HOME's, without a look at PATH, as Spark has it; PATH's when that is not set."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java") or ""
    inside = Path(home, "bin", "java")
    if not os.access(inside, os.X_OK):
        raise BadInput(f"JAVA_HOME is {home}, and there is no Java in it: {_HOW_TO_GET_IT}")
    return str(inside)


def _major_version(java: str) -> int:
    """0 when it says none."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', ran.stderr)
    return int(found[1]) if found else 0
