"""Installs the definitions of other operators' kinds that the chart may use."""

from __future__ import annotations

from pushlane.core.errors import Unreachable
from scripts.chart_live.api import Api, holds_within
from scripts.go_modules import custom_resources

_SETTLE_BOUND_S = 60.0
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(api: Api) -> None:
    """Give the definitions to an API server, and wait until it serves them.

    Raises:
        UserError: a definition cannot be had, or the server refuses it.
        Unreachable: the server does not serve the kinds.
    """
    for file in custom_resources():
        api.post(_PATH, file.read_text())
    if not holds_within(_SETTLE_BOUND_S, lambda: _serves(api)):
        raise Unreachable(f"custom resources are not served after {_SETTLE_BOUND_S:.0f} s")


def _serves(api: Api) -> bool:
    """Objects of each kind can be listed, which takes a moment after its definition."""
    return all(
        api.ask(
            "GET", f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        ).accepted
        for spec in (found["spec"] for found in api.items(_PATH))
        for version in spec["versions"]
        if version["served"]
    )
