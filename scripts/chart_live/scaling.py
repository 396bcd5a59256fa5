"""Checks that an upgrade leaves the number of pods to who scales them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pushlane.core.errors import UserError
from scripts.chart_live.api import Api, Object


def targets(api: Api, namespace: str, objects: Iterable[Object]) -> list[str]:
    """The paths of what the release's scalers scale.

    Raises:
        UserError: a scaler scales what is not there.
    """
    return [
        _target(api, namespace, found)
        for found in objects
        if "scaleTargetRef" in found.get("spec", {})
    ]


def scale(api: Api, paths: Iterable[str]) -> dict[str, int]:
    """Give each another number of pods, as a scaler does; which one."""
    return {path: _add_one(api, f"{path}/scale") for path in paths}


def check_left_alone(api: Api, scaled: Mapping[str, int]) -> None:
    """Each has the number of pods that `scale` gave it.

    Raises:
        UserError: one has not; the message says which, and how many it has.
    """
    for path, wanted in scaled.items():
        pods = api.get(f"{path}/scale")["spec"].get("replicas", 0)
        if pods != wanted:
            name = path.rpartition("/")[2]
            raise UserError(
                f"helm upgrade gave {name} {pods} pods, where a scaler had made {wanted}"
            )


def _add_one(api: Api, path: str) -> int:
    found = api.get(path)
    pods = int(found["spec"].get("replicas", 0)) + 1
    api.ask("PUT", path, {**found, "spec": {"replicas": pods}}).checked(f"PUT {path}")
    return pods


def _target(api: Api, namespace: str, scaler: Object) -> str:
    target = scaler["spec"]["scaleTargetRef"]
    kind, name = target.get("kind", "Deployment"), target["name"]
    path = api.resource(target.get("apiVersion", "apps/v1"), kind).path(namespace, name)
    if not api.ask("GET", path).accepted:
        raise UserError(f"{scaler['kind']} {scaler['metadata']['name']} scales no {kind} {name}")
    return path
