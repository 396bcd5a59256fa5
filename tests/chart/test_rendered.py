"""What Helm renders is what Kubernetes takes, and no more than it has to be allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pushlane.cli.dispatch import _LEAVE_S
from pushlane.door.server import GRACE_S
from pushlane.ingest.mapping import load_mapping
from pushlane.ingest.record import Record
from pushlane.settings import Settings
from scripts.chart import CHART
from tests.chart.manifests import EXAMPLES, HELMS, PROBES, Rendered, render, run_helm
from tests.chart.tools import KUBE_VERSION, program, write_custom_schemas

_KUBERNETES = ("1.25", "1.28", "1.31", "1.34", "1.37")
_CUSTOM = ("ScaledObject", "ServiceMonitor", "PrometheusRule")
_MONITORED = (
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "dashboard.enabled=true",
)

examples = pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
everything = CHART / "ci/everything.yaml"


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_custom_schemas(folder)
    return folder


@examples
@pytest.mark.parametrize("helm", HELMS)
def test_helm_finds_no_fault(helm: str, values: Path) -> None:
    linted = run_helm(helm, "lint", "", values, [], KUBE_VERSION)

    assert linted.exit_code == 0, linted.stdout + linted.stderr
    assert "[WARNING]" not in linted.stdout + linted.stderr


@examples
def test_both_helms_render_the_same(values: Path) -> None:
    third, fourth = (render(values, helm=helm).manifests for helm in HELMS)

    assert third == fourth


@examples
@pytest.mark.parametrize("version", _KUBERNETES)
def test_kubernetes_knows_every_field(values: Path, version: str) -> None:
    for each in render(values, kube=f"{version}.0").manifests:
        if each["kind"] not in _CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)


@examples
def test_operators_know_every_field(values: Path, schemas: Path, tmp_path: Path) -> None:
    rendered = render(values, sets=_MONITORED)
    custom = [each for each in rendered.manifests if each["kind"] in _CUSTOM]
    file = tmp_path / "custom.yaml"
    file.write_text(yaml.safe_dump_all(custom))
    location = f"{schemas}/{{{{ .ResourceKind }}}}_{{{{ .ResourceAPIVersion }}}}.json"

    ran = subprocess.run(
        [program("kubeconform"), "-strict", "-summary", "-schema-location", location, file],
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout
    assert f"Valid: {len(custom)}" in ran.stdout


@examples
def test_an_executor_is_a_pod(values: Path) -> None:
    for name, pod in render(values).pods():
        if name.endswith("executor"):
            kubernetes_validate.validate(pod, "1.30", strict=True)


@examples
def test_pods_may_do_nothing_that_they_need_not(values: Path) -> None:
    for name, pod in render(values).pods():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]], name


def test_only_drivers_of_spark_on_kubernetes_get_a_token() -> None:
    rendered = render(everything)

    assert not any(each["automountServiceAccountToken"] for each in rendered.of("ServiceAccount"))
    with_token = {name for name, pod in rendered.pods() if _has_token(pod)}
    assert with_token == {
        "Deployment pushes-rules",
        "Deployment pushes-receipts",
        "CronJob pushes-job-weekly",
    }
    assert not any(_has_token(pod) for _, pod in render(CHART / "ci/one-machine.yaml").pods())


def _has_token(pod: dict[str, Any]) -> bool:
    return pod["spec"]["automountServiceAccountToken"]


def test_no_secret_is_made_or_shown() -> None:
    rendered = render(everything)

    assert rendered.of("Secret") == []
    settings = rendered.one("ConfigMap", "pushes")["data"]["pushlane.toml"]
    assert 'pulsar_token_file = "/run/secrets/pushlane/pulsar/token"' in settings
    assert "address_key" not in settings


@pytest.mark.parametrize(("drain_s", "grace_s"), [(30, 40), (0, 10), (61, 71)])
def test_a_dispatcher_has_time_to_end(drain_s: int, grace_s: int) -> None:
    sets = [f"settings.drain_timeout_s={drain_s}"]
    deployment = render(CHART / "ci/smallest.yaml", sets=sets).of("Deployment")[0]

    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == grace_s > drain_s + _LEAVE_S


def test_a_dispatcher_has_time_to_end_unless_told() -> None:
    [deployment] = render(CHART / "ci/smallest.yaml").of("Deployment")

    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > Settings().drain_timeout_s + _LEAVE_S


def test_who_asks_over_http_has_time_to_end() -> None:
    pod = dict(render(everything).pods())["Deployment pushes-serve"]["spec"]

    [wait, seconds] = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert wait == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + GRACE_S + 5


def test_an_api_keeps_nothing_and_is_reached_at_its_port_alone() -> None:
    rendered = render(CHART / "ci/serve.yaml")

    deployment = rendered.one("Deployment", "push-pushlane-serve")["spec"]
    assert deployment["replicas"] == 2
    pod = deployment["template"]["spec"]
    assert [one for one in pod["volumes"] if "persistentVolumeClaim" in one] == []
    [container] = pod["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert container["args"][:3] == ["serve", "--bind", f"0.0.0.0:{ports['http']}"]
    assert container["args"][-2:] == ["--behind-proxy", "10.0.0.0/8"]
    assert {container[probe]["httpGet"]["port"] for probe in PROBES} == {"metrics"}
    [port] = rendered.one("Service", "push-pushlane-serve")["spec"]["ports"]
    assert port == {"name": "http", "port": 8400, "targetPort": "http"}
    assert rendered.one("PodDisruptionBudget", "push-pushlane-serve")["spec"]["maxUnavailable"] == 1
    [policy] = rendered.of("NetworkPolicy")
    allowed = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    proxy = {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}
    assert allowed == {"metrics": None, "http": [{"namespaceSelector": proxy}]}


def test_all_pods_of_an_api_have_the_key_of_sessions() -> None:
    pods = dict(render(CHART / "ci/serve.yaml").pods())
    pod = pods["Deployment push-pushlane-serve"]["spec"]

    [container] = pod["containers"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "sessions"]
    assert volume["secret"]["secretName"] == "push-sessions"
    assert volume["secret"]["items"] == [{"key": "session-key", "path": "key"}]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "sessions"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["PUSHLANE_SESSION_KEY_FILE"] == f"{mount['mountPath']}/key"


def test_an_ingress_is_made_where_it_is_asked_for() -> None:
    [ingress] = render(CHART / "ci/serve.yaml").of("Ingress")

    [rule] = ingress["spec"]["rules"]
    assert rule["host"] == "push.example"
    [path] = rule["http"]["paths"]
    service = {"name": "push-pushlane-serve", "port": {"number": 8400}}
    assert path["backend"] == {"service": service}
    assert ingress["spec"]["tls"] == [{"secretName": "push-example", "hosts": ["push.example"]}]
    told = ingress["metadata"]["annotations"]
    assert told["nginx.ingress.kubernetes.io/proxy-request-buffering"] == "off"
    assert render(everything).of("Ingress") == []


def test_an_api_with_a_certificate_is_said_to_have_tls() -> None:
    rendered = render(everything)

    args = dict(rendered.pods())["Deployment pushes-serve"]["spec"]["containers"][0]["args"]
    folder = "/run/secrets/pushlane/certificate"
    assert args[-4:] == ["--tls-cert", f"{folder}/tls.crt", "--tls-key", f"{folder}/tls.key"]
    [port] = rendered.one("Service", "pushes-serve")["spec"]["ports"]
    assert port["name"] == "https"
    with_it = {
        name
        for name, pod in rendered.pods()
        for volume in pod["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") == "pushes-tls"
    }
    assert with_it == {"Deployment pushes-serve"}


def test_who_scales_a_group_says_how_many_pods_there_are() -> None:
    rendered = render(everything)

    replicas = {
        each["metadata"]["labels"]["pushlane/group"]: each["spec"].get("replicas")
        for each in rendered.of("Deployment")
        if "pushlane/group" in each["metadata"]["labels"]
    }
    assert replicas == {"fcm": None, "mail": None, "all": 3}
    scaled = {each["metadata"]["name"]: each["spec"] for each in rendered.of("ScaledObject")}
    assert scaled["pushes-dispatch-fcm"]["scaleTargetRef"] == {"name": "pushes-dispatch-fcm"}
    assert scaled["pushes-dispatch-fcm"]["minReplicaCount"] == 1
    [asked] = scaled["pushes-dispatch-fcm"]["triggers"]
    assert asked["metricType"] == "Value"
    assert asked["metadata"] == {
        "url": "http://pushes-dispatch.default.svc:9095/drain?sinks=fcm",
        "format": "json",
        "valueLocation": "seconds",
        "targetValue": "300",
    }


def test_an_hpa_looks_at_each_sink_by_itself() -> None:
    [scaler] = render(CHART / "ci/hpa.yaml").of("HorizontalPodAutoscaler")

    metrics = [each["external"] for each in scaler["spec"]["metrics"]]
    assert [each["metric"]["selector"]["matchLabels"] for each in metrics] == [
        {"job": "pushlane", "sink": "app"},
        {"job": "pushlane", "sink": "mail"},
    ]
    assert {each["target"]["value"] for each in metrics} == {"60"}


def test_metrics_are_asked_for_the_default_sink_by_its_name() -> None:
    own = "dispatchers.main.autoscaling"
    by_prometheus = [f"{own}.by=keda", f"{own}.keda.trigger=prometheus"]
    sets = ["settings.sink=webhook:http://x/", *by_prometheus]
    sets.append(f"{own}.keda.serverAddress=http://p:9090")

    [scaler] = render(CHART / "ci/smallest.yaml", sets=sets).of("ScaledObject")

    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    assert query == 'max(pushlane_drain_seconds{sink=~"default"})'


@pytest.mark.parametrize("given", [None, False])
def test_new_pods_come_before_old_ones_go_and_start_beside_them_unless_told(
    given: bool | None,
) -> None:
    sets = [] if given is None else ["settings.replace_sink=false"]
    rendered = render(CHART / "ci/smallest.yaml", sets=sets)

    settings = rendered.one("ConfigMap", "push-pushlane")["data"]["pushlane.toml"]
    assert f"replace_sink = {'true' if given is None else 'false'}\n" in settings
    [deployment] = rendered.of("Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_a_query_may_choose_among_releases() -> None:
    own = "dispatchers.mail.autoscaling.keda.matchLabels"
    rendered = render(everything, sets=[f"{own}.namespace=shop"])

    [trigger] = rendered.one("ScaledObject", "pushes-dispatch-mail")["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert query == 'max(pushlane_drain_seconds{sink=~"mail",namespace="shop"})'


def test_large_numbers_are_written_as_in_the_values(tmp_path: Path) -> None:
    """A number of a file is a float to Helm, which prints a million as 1e+06."""
    job = {"schedule": "@daily", "audience": "/users.csv", "most": 5_000_000}
    job |= {"task": {"level": "low"}, "options": {"rows": 2_000_000}}
    values = yaml.safe_load((CHART / "ci/one-machine.yaml").read_text())
    values["receipts"]["maxBodies"] = 1_000_000
    values["spark"]["conf"] = {"spark.sql.autoBroadcastJoinThreshold": 10_485_760}
    values["storage"]["fanout"]["accessMode"] = "ReadWriteMany"
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({**values, "sparkJobs": {"daily": job}}))

    pods = dict(render(file).pods())

    of_job, of_receipts = (
        pods[name]["spec"]["containers"][0]["args"]
        for name in ("CronJob push-pushlane-job-daily", "Deployment push-pushlane-receipts")
    )
    assert {"5000000", "rows=2000000"} <= set(of_job)
    assert "1000000" in of_receipts
    assert "spark.sql.autoBroadcastJoinThreshold=10485760" in of_job


def test_a_job_may_have_one_attempt_and_two_weeks() -> None:
    sets = ["sparkJobs.daily.backoffLimit=0", "sparkJobs.daily.activeDeadlineSeconds=1209600"]
    rendered = render(CHART / "ci/daily-job.yaml", sets=sets)

    job = rendered.one("CronJob", "push-pushlane-job-daily")["spec"]["jobTemplate"]["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 1_209_600)


@pytest.mark.parametrize(("given", "setting"), [("false", "off"), ("true", "on")])
def test_receipts_need_no_quotes(given: str, setting: str) -> None:
    rendered = render(CHART / "ci/smallest.yaml", sets=[f"settings.receipts={given}"])

    settings = rendered.one("ConfigMap", "push-pushlane")["data"]["pushlane.toml"]
    assert f'receipts = "{setting}"' in settings


@pytest.mark.parametrize(("given", "setting"), [("false", '"off"'), ("off", '"off"'), ("90", "90")])
def test_a_patience_that_is_switched_off_needs_no_quotes(given: str, setting: str) -> None:
    rendered = render(CHART / "ci/smallest.yaml", sets=[f"settings.loop_patience_s={given}"])

    settings = rendered.one("ConfigMap", "push-pushlane")["data"]["pushlane.toml"]
    assert f"loop_patience_s = {setting}" in settings


@pytest.mark.parametrize("name", ["on", "null", "e1"])
def test_a_group_may_have_any_name(name: str) -> None:
    for _, pod in render(CHART / "ci/smallest.yaml", sets=[f"dispatchers.{name}.slots=3"]).pods():
        assert pod["metadata"]["labels"]["pushlane/group"] == name


@pytest.mark.parametrize(
    "conf",
    [
        "spark\\.hadoop\\.fs\\.s3a\\.secret\\.key=$(KEY)",
        "spark\\.hadoop\\.fs\\.s3a\\.aws\\.credentials\\.provider=org.apache.Provider",
        "spark\\.authenticate\\.secret\\.driver\\.file=/run/secrets/spark",
    ],
)
def test_spark_may_be_told_where_a_secret_is(conf: str) -> None:
    rendered = render(CHART / "ci/one-machine.yaml", sets=[f"spark.conf.{conf}"])

    args = dict(rendered.pods())["Deployment push-pushlane-rules"]["spec"]["containers"][0]["args"]
    assert conf.replace("\\", "") in args


def test_workers_of_a_spark_elsewhere_reach_their_driver() -> None:
    workers = "networkPolicy.sparkFrom[0].ipBlock.cidr=10.0.0.0/8"
    sets = ["spark.master=spark://s:7077", workers]

    [policy] = render(CHART / "ci/one-machine.yaml", sets=sets).of("NetworkPolicy")

    assert {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]} in policy["spec"]["ingress"]


def test_every_pod_asks_for_memory() -> None:
    """A pod that asks for none is the first that goes when a node runs out."""
    for values in EXAMPLES:
        for name, pod in render(values).pods():
            if not name.endswith("executor"):  # Spark asks for theirs
                assert pod["spec"]["containers"][0]["resources"]["requests"]["memory"], name


def test_a_claim_of_one_node_holds_up_no_upgrade() -> None:
    """The old pod has to go first: the new one may be on a node that cannot mount the claim yet."""
    for each in render(everything).of("Deployment"):
        template = each["spec"]["template"]["spec"]
        stores = [one for one in template["volumes"] if one["name"] in ("reports", "fanout")]
        if any(volume.get("persistentVolumeClaim") for volume in stores):
            assert each["spec"]["strategy"] == {"type": "Recreate"}, each["metadata"]["name"]


def test_each_pod_of_an_ingest_is_known_to_kafka_by_its_name_and_keeps_its_bad_records() -> None:
    ingest = render(everything).one("StatefulSet", "pushes-ingest-orders")["spec"]

    pod = ingest["template"]["spec"]
    [container] = pod["containers"]
    args = container["args"]
    assert args[:4] == ["ingest", "kafka://kafka:9093/orders", "--stream", "orders"]
    settings = {args[at + 1] for at, each in enumerate(args) if each == "--kafka"}
    assert "group.instance.id=$(POD_NAME)" in settings
    assert "sasl.password=@/run/secrets/pushlane/kafka/password" in settings
    assert "POD_NAME" in {each["name"] for each in container["env"]}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts["/run/secrets/pushlane/kafka"] == "kafka-secret"
    assert args[args.index("--bad") + 1] == "/var/lib/pushlane/bad/records.jsonl"
    assert mounts["/var/lib/pushlane/bad"] == ingest["volumeClaimTemplates"][0]["metadata"]["name"]
    assert mounts["/audiences"] == "audiences"  # of all pods
    assert ingest["replicas"] == 4


def test_without_a_claim_a_bad_record_stops_the_ingest() -> None:
    rendered = render(everything)

    ingest = rendered.one("StatefulSet", "pushes-ingest-files")["spec"]
    assert "volumeClaimTemplates" not in ingest
    assert not {"--bad", "--kafka"} & set(ingest["template"]["spec"]["containers"][0]["args"])


def test_an_ingest_reads_its_mapping_as_it_was_given(tmp_path: Path) -> None:
    data = render(everything).one("ConfigMap", "pushes")["data"]
    file = tmp_path / "mapping.toml"
    file.write_text(data["orders.mapping.toml"])

    made = load_mapping(file)

    paid = Record("0", 0, b'{"device": "d", "id": 7, "status": "paid"}')
    content = made.of(paid)
    assert content is not None
    assert (content.recipient, content.title, content.ordered_by) == ("d", "Order 7", "7")
    assert made.of(paid._replace(value=b'{"device": "d", "id": 7, "status": "open"}')) is None


def test_changed_settings_replace_the_pods() -> None:
    def marks(*sets: str) -> set[str]:
        pods = render(CHART / "ci/smallest.yaml", sets=sets).pods()
        return {pod["metadata"]["annotations"]["pushlane/settings"] for _, pod in pods}

    assert marks() == marks()
    assert marks() != marks("settings.prefetch=64")


def test_what_selects_finds_its_pods() -> None:
    """A selector that fits nothing is no fault to Kubernetes."""
    for values in EXAMPLES:
        rendered = render(values)
        labels = [pod["metadata"]["labels"] for _, pod in rendered.pods()]
        for selector in _selectors(rendered):
            assert any(selector.items() <= each.items() for each in labels), selector


def _selectors(rendered: Rendered) -> list[dict[str, str]]:
    services = [each["spec"]["selector"] for each in rendered.of("Service")]
    kinds = ("PodDisruptionBudget", "Deployment")
    return services + [
        each["spec"]["selector"]["matchLabels"] for kind in kinds for each in rendered.of(kind)
    ]
