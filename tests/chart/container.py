"""Runs a container of a rendered pod as a process: its command, files, variables and probes.

The folders that the pod mounts are folders of the test. They have other paths than in the image, so
each path is replaced wherever the manifest names it; the port, too, as many may run at once.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.stack.services import free_port
from tests.chart.manifests import Manifest, Rendered
from tests.processes import DEADLINE_S, ROOT, until

_PORT = "9095"
_POD = {"metadata.name": "pod-1", "status.podIP": "127.0.0.1"}


class Container:
    """The only container of a pod, with `secrets` as the cluster's: by name, then by key."""

    def __init__(
        self,
        rendered: Rendered,
        pod: Manifest,
        folder: Path,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        job_name: str = "",
    ) -> None:
        self._rendered = rendered
        self._folder = folder
        self._secrets = secrets or {}
        self._fields = {**_POD, "metadata.labels['job-name']": job_name}
        self._spec = pod["spec"]
        [self._container] = self._spec["containers"]
        self._port = str(free_port())
        self._places = self._mounted()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start its command."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pushlane", *self.arguments()],
            env=self._environment(),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=(self._folder / "log").open("w"),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> str:
        """Run its command to its end, which has to be a good one, and return what it says."""
        self.start()
        assert self.wait() == 0, self.log
        return self.log

    def wait(self) -> int:
        """The exit code of a command that ends by itself."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def arguments(self) -> list[str]:
        """Its arguments, as Kubernetes expands them and with paths of this machine."""
        values = self._variables()
        expanded = (
            re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], each)
            for each in self._container["args"]
        )
        own = {_PORT: self._port, "0.0.0.0": "127.0.0.1", "0.0.0.0:8400": "127.0.0.1:0"}
        return [own.get(each, self._here(each)) for each in expanded]

    def succeeds(self, probe: str) -> bool:
        """Ask a probe once."""
        asked = self._container[probe]["httpGet"]
        assert asked["port"] == "metrics"
        url = f"http://127.0.0.1:{self._port}{asked['path']}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def wait_for(self, probe: str) -> None:
        """Ask a probe until it succeeds."""
        assert self._process is not None
        process = self._process
        until(lambda: process.poll() is not None or self.succeeds(probe))
        assert process.poll() is None, self.log

    def stop(self) -> int:
        """SIGTERM; the exit code, which has to come before Kubernetes kills it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(self._spec["terminationGracePeriodSeconds"])

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME")}
        return {
            **kept,
            "HOME": str(self._folder),
            "PYTHONPATH": str(ROOT),
            **{name: self._here(value) for name, value in self._variables().items()},
        }

    def _variables(self) -> dict[str, str]:
        return {each["name"]: self._value(each) for each in self._container["env"]}

    def _value(self, variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return self._fields[source["fieldRef"]["fieldPath"]]
        named = source["secretKeyRef"]
        return self._secrets[named["name"]][named["key"]]

    def _mounted(self) -> dict[str, Path]:
        """The folder of each mount path; what stands in them is written with paths of here."""
        mounts = self._container["volumeMounts"]
        volumes = {each["name"]: {"name": each["name"]} for each in mounts}  # a claim of its own
        volumes |= {each["name"]: each for each in self._spec["volumes"]}
        places = {each["mountPath"]: self._place_of(volumes[each["name"]]) for each in mounts}
        self._places = dict(sorted(places.items(), key=lambda each: -len(each[0])))
        for mount in mounts:
            place = places[mount["mountPath"]]
            place.mkdir(parents=True, exist_ok=True)
            for name, text in self._content(volumes[mount["name"]]).items():
                (place / name).write_text(self._here(text))
        return self._places

    def _place_of(self, volume: Manifest) -> Path:
        """The folder of a volume; pods beside each other have the same claims."""
        if claim := volume.get("persistentVolumeClaim"):
            return self._folder.parent / "claims" / str(claim["claimName"])
        return self._folder / "volumes" / str(volume["name"])

    def _content(self, volume: Manifest) -> Mapping[str, str]:
        if "configMap" in volume:
            data: dict[str, str] = self._rendered.one("ConfigMap", volume["configMap"]["name"])[
                "data"
            ]
            return data
        if "secret" in volume:
            return self._secrets[volume["secret"]["secretName"]]
        return {}

    def _here(self, text: str) -> str:
        """The text with each mount path replaced, all in one go, as a new path may hold another."""
        paths = "|".join(map(re.escape, self._places))
        return re.sub(
            rf"(?<![\w/])({paths})(?![\w-])", lambda found: str(self._places[found[1]]), text
        )
