"""Checks that an upgrade leaves the number of pods to who scales them."""

from __future__ import annotations

from collections.abc import Iterable

from pushlane.lanes.errors import UserError
from scripts.chart_live.api import Api, Object

_PODS = 3


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


def scale(api: Api, paths: Iterable[str]) -> None:
    """Give each another number of pods, as a scaler does."""
    for path in paths:
        found = api.get(f"{path}/scale")
        asked = {**found, "spec": {"replicas": _PODS}}
        api.ask("PUT", f"{path}/scale", asked).checked(f"PUT {path}/scale")


def check_left_alone(api: Api, paths: Iterable[str]) -> None:
    """Each has the number of pods that `scale` gave it.

    Raises:
        UserError: one has not; the message says which, and how many it has.
    """
    for path in paths:
        pods = api.get(f"{path}/scale")["spec"].get("replicas", 0)
        if pods != _PODS:
            name = path.rpartition("/")[2]
            raise UserError(
                f"helm upgrade gave {name} {pods} pods, where a scaler had made {_PODS}"
            )


def _target(api: Api, namespace: str, scaler: Object) -> str:
    target = scaler["spec"]["scaleTargetRef"]
    kind, name = target.get("kind", "Deployment"), target["name"]
    path = api.resource(target.get("apiVersion", "apps/v1"), kind).path(namespace, name)
    if not api.ask("GET", path).accepted:
        raise UserError(f"{scaler['kind']} {scaler['metadata']['name']} scales no {kind} {name}")
    return path
