"""Checks what a chart's workloads come to on a cluster: pods that are let in, and no lone selector.

A Deployment is accepted although none of its pods ever can be made, and a PodDisruptionBudget or a
NetworkPolicy although it selects nothing. So the controllers make pods here, and these are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import yaml

from pushlane.core.errors import UserError
from scripts.chart_live.api import Api, Object, holds_within

_SETTLE_BOUND_S = 60.0
_REPLICATED = ("Deployment", "StatefulSet")
_TOKEN = "kube-api-access-"  # noqa: S105  # begins the name of the volume that holds a token


def check(api: Api, namespace: str, objects: list[Object]) -> int:
    """How many pods the release came to.

    Raises:
        UserError: a pod is refused, a selector finds nothing, or a token has no use.
    """
    workloads = [found for found in objects if found["kind"] in _REPLICATED]
    jobs = [_begin(api, namespace, found) for found in objects if found["kind"] == "CronJob"]
    for found in (*workloads, *jobs):
        _wait_for_pods(api, found)
    for found in objects:
        _check_selector(api, namespace, found)
        _check_templates(api, namespace, found)
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
    _check_tokens(api, namespace, pods)
    return len(pods)


def _begin(api: Api, namespace: str, cron_job: Object) -> Object:
    """A Job of a CronJob, at once, as `kubectl create job --from` makes one."""
    meta = cron_job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": meta["name"], "uid": meta["uid"]}
    labels = cron_job["spec"]["jobTemplate"].get("metadata", {}).get("labels", {})
    body = {
        "metadata": {
            "generateName": f"{meta['name']}-",
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": cron_job["spec"]["jobTemplate"]["spec"],
    }
    made = api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", body)
    return {**made, "kind": "Job", "apiVersion": "batch/v1"}


def _wait_for_pods(api: Api, workload: Object) -> None:
    """Wait until the controllers have made all its pods.

    Raises:
        UserError: they do not; the message has what the events say.
    """
    meta = workload["metadata"]

    def made() -> bool:
        return _has_its_pods(api.find(workload, meta["namespace"]) or {})

    if not holds_within(_SETTLE_BOUND_S, made):
        why = "; ".join(_reasons(api, meta["namespace"], meta["name"])) or "no event says why"
        name = f"{workload['kind']} {meta['name']}"
        raise UserError(f"{name} has not all its pods after {_SETTLE_BOUND_S:.0f} s: {why}")


def _has_its_pods(workload: Object) -> bool:
    """As many as it wants, one of them at least as it wants them now.

    No pod ever gets ready, so a Deployment that keeps what is ready while it rolls never ends that.
    """
    status, spec = workload.get("status", {}), workload.get("spec", {})
    if "parallelism" in spec:  # a Job
        return bool(status.get("active", 0) >= spec["parallelism"])
    is_seen = status.get("observedGeneration") == workload.get("metadata", {}).get("generation")
    wanted = spec.get("replicas", 1)
    enough = status.get("replicas", 0) >= wanted
    return bool(is_seen and enough and status.get("updatedReplicas", 0) >= min(1, wanted))


def _reasons(api: Api, namespace: str, name: str) -> Iterator[str]:
    """What the events of a workload and of what it owns complain of, each once."""
    events = api.items(f"/api/v1/namespaces/{namespace}/events")
    yield from dict.fromkeys(
        event["message"]
        for event in events
        if event["type"] == "Warning" and event["involvedObject"]["name"].startswith(name)
    )


def _check_selector(api: Api, namespace: str, found: Object) -> None:
    """A Service, a budget and a policy each select a pod; a ServiceMonitor selects a Service."""
    labels = _selected(found)
    if labels is None:
        return
    plural = "services" if found["kind"] == "ServiceMonitor" else "pods"
    wanted = ",".join(f"{key}={value}" for key, value in labels.items())
    if not api.items(f"/api/v1/namespaces/{namespace}/{plural}", labelSelector=wanted):
        name = found["metadata"]["name"]
        raise UserError(f"{found['kind']} {name} selects no {plural}: none has {wanted}")


def _selected(found: Object) -> dict[str, str] | None:
    spec: Object = found.get("spec", {})
    labels: dict[str, str] | None = None
    match found["kind"]:
        case "Service":
            labels = spec.get("selector")
        case "PodDisruptionBudget" | "ServiceMonitor" | "PodMonitor":
            labels = spec["selector"].get("matchLabels")
        case "NetworkPolicy":
            labels = spec["podSelector"].get("matchLabels", {})
    return labels


def _check_templates(api: Api, namespace: str, found: Object) -> None:
    """A pod in a ConfigMap, as Spark makes its executors of, is let in; it is not made."""
    if found["kind"] != "ConfigMap":
        return
    for key, text in found.get("data", {}).items():
        if re.search(r"^kind: Pod$", text, re.MULTILINE):
            pod = yaml.safe_load(text)
            pod["metadata"] = {**pod.get("metadata", {}), "generateName": "template-"}
            path = f"/api/v1/namespaces/{namespace}/pods"
            answer = api.ask("POST", path, pod, dryRun="All", fieldValidation="Strict")
            answer.checked(f"the pod {key} in ConfigMap {found['metadata']['name']}")


def _check_tokens(api: Api, namespace: str, pods: Iterable[Object]) -> None:
    """A pod with a token of its service account may make pods here, and nothing elsewhere."""
    accounts = {pod["spec"]["serviceAccountName"] for pod in pods if _has_token(pod)}
    for account in sorted(accounts):
        if not _may(api, namespace, account, "create", "pods"):
            raise UserError(f"pods of the service account {account} hold a token without a use")
        for elsewhere in ("default", "kube-system"):
            if _may(api, namespace, account, "list", "secrets", elsewhere):
                raise UserError(f"the service account {account} may list secrets of {elsewhere}")


def _has_token(pod: Object) -> bool:
    return any(volume["name"].startswith(_TOKEN) for volume in pod["spec"].get("volumes", ()))


def _may(
    api: Api, namespace: str, account: str, verb: str, resource: str, where: str | None = None
) -> bool:
    user = f"system:serviceaccount:{namespace}:{account}"
    asked = {"namespace": where or namespace, "verb": verb, "resource": resource}
    body = {"spec": {"user": user, "resourceAttributes": asked}}
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])
