"""One release of a chart on the cluster: installed, changed, looked at, and taken away again.

Its namespace enforces the Pod Security Standard `restricted`, so that a pod that asks for more than
it may is refused, and a Deployment that would ask for it is warned about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pushlane.core.errors import Unreachable, UserError
from scripts.chart_live.api import Api, Object, Resource, holds_within
from scripts.chart_live.helm import Helm
from scripts.chart_live.rounds import Step

RELEASE = "pushlane"

_SETTLE_BOUND_S = 60.0
_LEVELS = ("enforce", "warn", "audit")
# What comes and goes by itself, and ComponentStatus, which asks for a scheduler.
_NOT_OURS = {"Event", "ComponentStatus", "Lease"}
_OF_THE_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
_KEEP = "helm.sh/resource-policy"
_REVISION = "deployment.kubernetes.io/revision"
_ADDRESSES = ("clusterIP", "clusterIPs")

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Release:
    """A release in a namespace of its own."""

    api: Api
    helm: Helm
    namespace: str

    def prepare(self) -> None:
        """Make the namespace, and wait until pods can be made in it."""
        labels = {f"pod-security.kubernetes.io/{level}": "restricted" for level in _LEVELS}
        body = {"kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        self.api.post("/api/v1/namespaces", body)
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        if not holds_within(_SETTLE_BOUND_S, lambda: self.api.ask("GET", account).accepted):
            raise Unreachable(f"the controllers give the namespace {self.namespace} no account")

    def rendered(self, step: Step) -> list[Object]:
        """The manifests of the chart for these values and for this server."""
        return self.helm.manifests("install", *self._of(step), "--dry-run=server")

    def provide(self, manifests: Iterable[Object]) -> None:
        """Make what a cluster has before the chart comes, and pods cannot be made without."""
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        for name in sorted(
            {name for one in manifests for name in _named("priorityClassName", one)}
        ):
            if not self.api.ask("GET", f"{path}/{name}").accepted:
                self.api.post(path, {"metadata": {"name": name}, "value": 1000})

    def check_strictly(self, manifests: Iterable[Object]) -> None:
        """Let the server check each manifest, and keep none.

        Raises:
            UserError: it refuses one, does not know a field of it, or warns.
        """
        for manifest in manifests:
            self._check(manifest)

    def install(self, step: Step) -> None:
        self.helm.run("install", *self._of(step))

    def upgrade(self, step: Step) -> None:
        self.helm.run("upgrade", *self._of(step))

    def roll_back(self, revision: int) -> None:
        self.helm.run("rollback", RELEASE, str(revision), "--namespace", self.namespace)

    def uninstall(self) -> None:
        self.helm.run("uninstall", RELEASE, "--namespace", self.namespace)

    def objects(self) -> list[Object]:
        """The objects of the release as the server has them.

        Raises:
            UserError: one of them is not there.
        """
        return [found for _, found in self._pairs()]

    def state(self) -> dict[Key, Object]:
        """What the release asks for, without what the server adds: to compare two times."""
        return {_key(found): _asked(found, manifest) for manifest, found in self._pairs()}

    def kept(self) -> set[Key]:
        """The objects that the chart asks Helm to keep when the release goes."""
        return {
            _key(found)
            for found in self.objects()
            if found["metadata"].get("annotations", {}).get(_KEEP) == "keep"
        }

    def inventory(self) -> set[Key]:
        """All objects of the namespace and of the cluster, whoever made them."""
        known = (one for one in self.api.listed if one.kind not in _NOT_OURS)
        return {key for resource in known for key in self._listed(resource)}

    def wait_for_nothing_but(self, expected: set[Key]) -> None:
        """Wait until all that is not expected is gone.

        Raises:
            UserError: something stays; the message names it.
        """
        left = self.inventory() - expected

        def nothing() -> bool:
            kinds = {kind for kind, _, _ in left}
            known = (one for one in self.api.listed if one.kind in kinds)
            left.intersection_update({key for one in known for key in self._listed(one)})
            return not left

        if not holds_within(_SETTLE_BOUND_S, nothing):
            names = ", ".join(f"{kind} {name}" for kind, _, name in sorted(left))
            raise UserError(
                f"{_SETTLE_BOUND_S:.0f} s after helm uninstall there are still: {names}"
            )

    def _pairs(self) -> Iterator[tuple[Object, Object]]:
        """Each manifest of the release, with the object that the server has."""
        manifests = self.helm.manifests("status", RELEASE, "--namespace", self.namespace)
        for manifest in manifests:
            yield manifest, self._found(manifest)

    def _listed(self, resource: Resource) -> Iterator[Key]:
        for found in self.api.items(resource.path(self.namespace)):
            meta = found["metadata"]
            yield resource.kind, meta.get("namespace", ""), meta["name"]

    def _check(self, manifest: Object) -> None:
        resource = self.api.resource(manifest["apiVersion"], manifest["kind"])
        path = resource.path(manifest["metadata"].get("namespace", self.namespace))
        answer = self.api.ask("POST", path, manifest, dryRun="All", fieldValidation="Strict")
        what = f"{manifest['kind']} {manifest['metadata']['name']}"
        answer.checked(what)
        if answer.warnings:
            raise UserError(f"{what} is accepted with a warning: {'; '.join(answer.warnings)}")

    def _found(self, manifest: Object) -> Object:
        found = self.api.find(manifest, manifest["metadata"].get("namespace", self.namespace))
        if found is None:
            name = manifest["metadata"]["name"]
            raise UserError(f"{manifest['kind']} {name} was rendered and is not on the server")
        return {**found, "kind": manifest["kind"]}

    def _of(self, step: Step) -> tuple[str, ...]:
        """The release, the chart, its values and the namespace, as Helm's commands take them."""
        values = ("--values", str(step.values), "--namespace", self.namespace)
        return (RELEASE, str(step.chart), *values)


def _named(field: str, found: object) -> Iterator[str]:
    """The values of a field, wherever in the object it stands."""
    if isinstance(found, dict):
        if isinstance(named := found.get(field), str):
            yield named
        found = list(found.values())
    if isinstance(found, list):
        for part in found:
            yield from _named(field, part)


def _key(found: Object) -> Key:
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _asked(found: Object, manifest: Object) -> Object:
    """The object without what the server adds, and without pods that are left to a scaler."""
    meta = {k: v for k, v in found["metadata"].items() if k not in _OF_THE_SERVER}
    meta["annotations"] = {k: v for k, v in meta.get("annotations", {}).items() if k != _REVISION}
    rest = {k: v for k, v in found.items() if k not in ("metadata", "status")}
    if found["kind"] == "Service":
        rest["spec"] = {k: v for k, v in rest["spec"].items() if k not in _ADDRESSES}
    if "replicas" in rest.get("spec", {}) and "replicas" not in manifest["spec"]:
        rest["spec"] = {k: v for k, v in rest["spec"].items() if k != "replicas"}
    return {**rest, "metadata": meta}
