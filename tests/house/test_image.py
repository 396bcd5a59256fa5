"""The Dockerfile, read: nothing without a hash, no root, no shell between signals and pushlane."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.shape import ROOT

_DOCKERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
_LINES = [line for line in _DOCKERFILE.splitlines() if line and not line.startswith("#")]
_STAGES = re.split(r"^(?=FROM )", _DOCKERFILE, flags=re.MULTILINE)[1:]
_TARGETS = ("service", "spark")


def _stage(name: str) -> str:
    [stage] = [each for each in _STAGES if each.splitlines()[0].endswith(f" AS {name}")]
    return stage


def _commands(words: str) -> list[list[str]]:
    """The commands of all RUN lines that begin with these words."""
    runs = [line.removeprefix("RUN ") for line in _LINES if line.startswith("RUN ")]
    each = [shlex.split(command) for run in runs for command in run.split(" && ")]
    return [command for command in each if command[: len(words.split())] == words.split()]


def test_bases_are_arguments() -> None:
    bases = re.findall(r"^FROM (\S+)", _DOCKERFILE, re.MULTILINE)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", _DOCKERFILE, re.MULTILINE))

    assert {base for base in bases if base not in stages} == {"${PYTHON_IMAGE}"}


def test_nothing_is_installed_without_a_hash() -> None:
    fetched = _commands("pip install") + _commands("pip download")

    assert len(fetched) == 7
    assert [each for each in fetched if not {"--require-hashes", "--no-index"} & set(each)] == []


def test_packages_of_debian_leave_no_lists() -> None:
    for line in _LINES:
        if "apt-get install" in line:
            assert "--no-install-recommends" in line
            assert "rm -rf /var/lib/apt/lists/*" in line


@pytest.mark.parametrize("target", _TARGETS)
def test_it_runs_as_a_user_with_a_number(target: str) -> None:
    assert _stage(target).rstrip().endswith("USER 10001:10001")


def test_signals_reach_pushlane() -> None:
    assert _stage("runtime").count('ENTRYPOINT ["tini", "--", "pushlane"]') == 1
    assert "STOPSIGNAL SIGTERM" in _stage("runtime")
    assert not any(line.startswith(("ENTRYPOINT", "CMD")) for line in _LINES if "[" not in line)


def test_the_builder_gets_what_the_package_is_made_of_and_no_more() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    given = {rule[1:] for rule in rules if rule.startswith("!")}
    parts = {path.name for path in (ROOT / "pushlane").iterdir() if path.is_symlink()}

    assert "*" in rules
    assert parts | {"pushlane"} <= given
    assert [name for name in given if not (ROOT / name).exists()] == []


def test_copied_files_are_given_to_the_builder() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) ", _DOCKERFILE, re.MULTILINE)
    rules = (ROOT / ".dockerignore").read_text().splitlines()

    given = [rule[1:] for rule in rules if rule.startswith("!")]
    assert [path for path in copied if path != "." and not path.startswith(tuple(given))] == []


def test_the_chart_starts_executors_by_what_is_in_the_image() -> None:
    assert "COPY docker /usr/local/libexec" in _stage("spark")
    template = (ROOT / "charts/pushlane/templates/spark.yaml").read_text()
    assert "command: [/usr/local/libexec/spark-executor]" in template


def test_an_executor_is_started_as_spark_says(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    said = {"DRIVER_URL": "spark://d", "EXECUTOR_ID": "7", "EXECUTOR_CORES": "2"}
    said |= {"EXECUTOR_MEMORY": "3g", "APPLICATION_ID": "app", "EXECUTOR_POD_IP": "10.0.0.1"}
    said |= {"RESOURCE_PROFILE_ID": "0", "EXECUTOR_POD_NAME": "pod", "JAVA_OPT_0": "-Da=b c"}
    said |= {"JAVA_OPT_1": "-Dd=e", "CLASSPATH": "/opt/more.jar"}

    ran = subprocess.run(
        [ROOT / "docker/spark-executor", "executor"],
        env={
            "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            **{f"SPARK_{name}": value for name, value in said.items()},
        },
        capture_output=True,
        text=True,
        check=True,
    )

    arguments = ran.stdout.splitlines()
    assert arguments[:2] == ["-Da=b c", "-Dd=e"]
    assert Path(arguments[2].partition("=")[2]).is_file(), "its log may quote rows"
    assert arguments[3:5] == ["-Xms3g", "-Xmx3g"]
    assert arguments[6].startswith(":/opt/more.jar:")
    assert arguments[7] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    given = dict(zip(arguments[8::2], arguments[9::2], strict=True))
    assert given["--driver-url"] == "spark://d"
    assert given["--podName"] == "pod"
