"""`make chart-live` without its server: its plan, the faults it finds in answers, its errors."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from pushlane.core.errors import UserError
from scripts import go_modules
from scripts.chart_live import build, rounds
from scripts.chart_live.api import Api, Object
from scripts.chart_live.workloads import check

POD: Object = {
    "kind": "Pod",
    "metadata": {"name": "one", "labels": {"app": "pushlane"}},
    "spec": {"serviceAccountName": "pushlane"},
}


class Server:
    """An API server that has some objects, and lets nobody do anything."""

    def __init__(self, **objects: list[Object]) -> None:
        self._objects = objects

    def items(self, path: str, *, labelSelector: str = "") -> list[Object]:
        wanted = dict(pair.split("=") for pair in labelSelector.split(",") if pair)
        known = self._objects.get(path.rpartition("/")[2], [])
        return [one for one in known if wanted.items() <= one["metadata"]["labels"].items()]

    def find(self, manifest: Object, namespace: str) -> Object | None:
        name = manifest["metadata"]["name"]
        known = self._objects.get(f"{manifest['kind'].lower()}s", [])
        return next((one for one in known if one["metadata"]["name"] == name), None)

    def post(self, path: str, body: Object) -> Object:
        return {"status": {"allowed": False}}


def pods_of(objects: list[Object], **there: list[Object]) -> int:
    return check(cast(Api, Server(**there)), "live", objects)


def chart(folder: Path, *values: str) -> Path:
    (folder / "ci").mkdir(parents=True)
    (folder / "Chart.yaml").touch()
    for name in values:
        (folder / "ci" / name).touch()
    return folder


def test_each_values_file_is_upgraded_to_the_next_and_the_last_to_the_first(tmp_path: Path) -> None:
    found = rounds.of_all_values(chart(tmp_path / "chart", "b.yaml", "a-values.yaml"))

    changes = {one.name: (one.first.values.name, one.then.values.name) for one in found}
    assert changes == {"a": ("a-values.yaml", "b.yaml"), "b": ("b.yaml", "a-values.yaml")}


def test_a_folder_without_a_chart_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no Chart\.yaml"):
        rounds.of_all_values(tmp_path)


def test_a_chart_without_values_to_try_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no values files"):
        rounds.of_all_values(chart(tmp_path / "chart"))


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that has a chart with two values files, not committed yet."""
    monkeypatch.setattr(rounds, "ROOT", tmp_path)
    for key in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.setenv(f"GIT_{key}", "nobody")
    git(tmp_path, "init", "-q")
    return chart(tmp_path / rounds.CHART, "a.yaml", "gone.yaml")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_the_chart_of_the_newest_tag_is_upgraded_where_both_have_the_values(
    history: Path, tmp_path: Path
) -> None:
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "Chart")
    git(tmp_path, "tag", "v1.0")
    (history / "ci" / "gone.yaml").unlink()

    (found,) = rounds.from_an_older(history, None, tmp_path / "out")

    older = tmp_path / "out" / "older" / rounds.CHART
    assert found.first.values == older / "ci" / "a.yaml"
    assert found.then.values == history / "ci" / "a.yaml"
    assert found.namespace("helm-3") == "helm-3-a-from-v1-0"


def test_without_a_tag_there_is_nothing_older(history: Path, tmp_path: Path) -> None:
    assert rounds.from_an_older(history, None, tmp_path) == []


def test_a_revision_without_a_chart_is_refused(history: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="v7 has no charts/pushlane"):
        rounds.from_an_older(history, "v7", tmp_path)


@pytest.mark.parametrize(
    ("kind", "spec", "complaint"),
    [
        ("Service", {"selector": {"app": "other"}}, "selects no pods: none has app=other"),
        ("PodDisruptionBudget", {"selector": {"matchLabels": {"app": "other"}}}, "no pods"),
        ("NetworkPolicy", {"podSelector": {"matchLabels": {"app": "other"}}}, "no pods"),
        ("ServiceMonitor", {"selector": {"matchLabels": {"app": "pushlane"}}}, "no services"),
    ],
)
def test_what_selects_nothing_is_named(kind: str, spec: Object, complaint: str) -> None:
    found = {"kind": kind, "metadata": {"name": "mine"}, "spec": spec}

    with pytest.raises(UserError, match=f"{kind} mine .*{complaint}"):
        pods_of([found], pods=[POD])


def test_what_selects_a_pod_is_well() -> None:
    found = {"kind": "Service", "metadata": {}, "spec": {"selector": {"app": "pushlane"}}}

    assert pods_of([found], pods=[POD]) == 1


def test_a_token_that_nobody_needs_is_named() -> None:
    token = {"name": "kube-api-access-x"}
    pod = {**POD, "spec": {**POD["spec"], "volumes": [token]}}

    with pytest.raises(UserError, match="account pushlane hold a token without a use"):
        pods_of([], pods=[pod])


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(go_modules, "_USUAL_PLACES", ())
    return tmp_path


def test_no_go_says_what_to_install(no_go: Path) -> None:
    with pytest.raises(UserError, match=r"built with Go 1\.26 or newer.*https://go\.dev/dl/"):
        go_modules.find_go()


def test_an_old_go_is_named(no_go: Path) -> None:
    go = no_go / "go"
    go.write_text("#!/bin/sh\necho go1.21.3\n")
    go.chmod(0o755)

    with pytest.raises(UserError, match=r"go is go1\.21\.3; install Go 1\.26"):
        go_modules.find_go()


def test_the_version_is_the_one_that_is_pinned() -> None:
    assert build.kubernetes_version().count(".") == 2
