"""Values that are none, or contradict one another, are refused in words that say which."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.chart import CHART
from tests.chart.manifests import HELMS, render

_SMALLEST = CHART / "ci/smallest.yaml"
_HPA = CHART / "ci/hpa.yaml"
_EVERYTHING = CHART / "ci/everything.yaml"
_EMBEDDED = CHART / "ci/embedded.yaml"
_ONE_MACHINE = CHART / "ci/one-machine.yaml"
_DAILY_JOB = CHART / "ci/daily-job.yaml"

_REFUSED: list[tuple[Path, list[str], list[str]]] = [
    # what the schema says
    (_SMALLEST, ["slotz=3"], ["additional properties 'slotz' not allowed"]),
    (_SMALLEST, ["settings.slotz=3"], ["/settings", "'slotz'"]),
    (_SMALLEST, ["settings.slots=0"], ["/settings/slots", "minimum"]),
    (_SMALLEST, ["settings.compression=gzip"], ["/settings/compression", "'zstd'"]),
    (_SMALLEST, ["settings.sinks.Mail.kind=webhook"], ["/settings/sinks", "'Mail'"]),
    (_SMALLEST, ["settings.sinks.mail.url=http://x"], ["/settings/sinks/mail", "'kind'"]),
    (_SMALLEST, ["settings.sinks.mail.kind=fmc"], ["/settings/sinks/mail/kind", "'fcm'"]),
    (_SMALLEST, ["settings.sink=webhok:http://x"], ["/settings/sink", "webhok"]),
    (_SMALLEST, ["settings.sinks.a.kind=webhook", "settings.sinks.a.uri=x"], ["'uri' not allowed"]),
    (_SMALLEST, ["settings.sinks.a.kind=fcm"], ["missing property 'credentials_file'"]),
    (_SMALLEST, ["dispatchers.Main.slots=3"], ["/dispatchers", "'Main'"]),
    (_SMALLEST, ["dispatchers.main.slotz=3"], ["/dispatchers/main", "'slotz'"]),
    (_SMALLEST, ["dispatchers.main.replicas=0"], ["/dispatchers/main/replicas", "minimum"]),
    (_SMALLEST, ["dispatchers.main.autoscaling.by=both"], ["/autoscaling/by", "'keda'"]),
    (_HPA, ["dispatchers.main.autoscaling.minReplicas=0"], ["/minReplicas", "minimum"]),
    (_SMALLEST, ["image.digest=latest"], ["/image/digest", "sha256"]),
    (_SMALLEST, ["sparkJobs.a.schedule=daily"], ["/sparkJobs/a", "'audience'", "schedule"]),
    (_SMALLEST, ["serve.replicas=0"], ["/serve/replicas", "minimum"]),
    (_SMALLEST, ["storage.reports.size=lots"], ["/storage/reports/size"]),
    (_SMALLEST, ["pod.nodeselector.a=b"], ["/pod", "'nodeselector'"]),
    (_EVERYTHING, ["ingests.orders.onGap=skip"], ["/ingests/orders/onGap", "'stop'"]),
    (_EVERYTHING, ["ingests.orders.stream=a b"], ["/ingests/orders/stream"]),
    # settings that are missing, or in a place that all can read
    (_SMALLEST, ["settings.broker="], ["settings.broker is needed"]),
    (_SMALLEST, ["settings.redis_url="], ["settings.admin_url and settings.redis_url are needed"]),
    (_SMALLEST, ["settings.sink="], ["settings.sinks or settings.sink is needed"]),
    (_SMALLEST, ["settings.reports_dir=/x"], ["settings.reports_dir is the chart's", "storage"]),
    (_SMALLEST, ["settings.pulsar_token=t"], ["settings.pulsar_token would stand", "secrets"]),
    (_SMALLEST, ["settings.address_key=k"], ["settings.address_key would stand"]),
    *(
        (_SMALLEST, [f"settings.{name}={url}"], [f"settings.{name} holds a user or a password"])
        for name, url in {
            "redis_url": "redis://:pass@r",
            "broker": "pulsar://token@b",
            "admin_url": "http://u:p+w@a",
            "sink": "https://u:p@r/push",
        }.items()
    ),
    (
        _SMALLEST,
        ["settings.sinks.a.kind=webhook", "settings.sinks.a.url=https://u:p@x/"],
        ["settings.sinks.a.url holds a user or a password", "url_file"],
    ),
    (
        _SMALLEST,
        ["settings.sinks.a.kind=webhook", "settings.sinks.a.headers.X-Api-Key=k"],
        ["settings.sinks.a.headers.X-Api-Key would stand in a ConfigMap"],
    ),
    (
        _EVERYTHING,
        ["ingests.orders.kafka.sasl\\.password=p"],
        ["ingests.orders.kafka has sasl.password", "@/run/secrets/pushlane/kafka/KEY"],
    ),
    (
        _EVERYTHING,
        ["ingests.orders.kafka.group\\.instance\\.id=a"],
        ["ingests.orders.kafka has group.instance.id"],
    ),
    (
        _EVERYTHING,
        ["ingests.files.existingSecret=kafka"],
        ["ingests.files has what is for Kafka alone", "/audiences/events"],
    ),
    (
        _EVERYTHING,
        ["ingests.files.stream=orders", "ingests.files.app=shop"],
        ["ingests.orders and ingests.files are of one stream"],
    ),
    (
        _SMALLEST,
        [
            "fullnameOverride=pushes-of-a-very-long-company",
            *(
                f"ingests.orders-of-a-shop.{one}"
                for one in ("source=/x", "stream=x", "mapping.a=b")
            ),
        ],
        ["pushes-of-a-very-long-company-ingest-orders-of-a-shop", "52 characters"],
    ),
    (
        _ONE_MACHINE,
        ["spark.conf.fs\\.s3a\\.secret\\.key=k"],
        ["spark.conf has fs.s3a.secret.key", "$(NAME)", "pod.extraEnv"],
    ),
    (
        _ONE_MACHINE,
        ["spark.conf.fs\\.azure\\.account\\.key\\.shop=k"],
        ["spark.conf has fs.azure.account.key.shop", "$(NAME)"],
    ),
    (
        _DAILY_JOB,
        ["sparkJobs.daily.options.password=p"],
        ["sparkJobs.daily.options has password", "$(NAME)", "pod.extraEnv"],
    ),
    *(
        (
            _SMALLEST,
            [f"{pod}.extraEnv[0].name=PUSHLANE_REDIS_PASSWORD", f"{pod}.extraEnv[0].value=p"],
            ["pod.extraEnv has the value of PUSHLANE_REDIS_PASSWORD"],
        )
        for pod in ("pod", "dispatchers.main.pod")
    ),
    # what is no address, or no name
    (_SMALLEST, ["settings.broker=kafka://k"], ["settings.broker cannot be used", "pulsar://HOST"]),
    (_SMALLEST, ["settings.admin_url=pulsar:8080"], ["settings.admin_url cannot be used"]),
    (_SMALLEST, ["settings.redis_url=redis:6379"], ["settings.redis_url cannot be used"]),
    *(
        (_SMALLEST, [f"fullnameOverride={name}"], [f"name {name} cannot be", "fullnameOverride"])
        for name in ("My-Push", "my_push", "a.b", "1push")
    ),
    (
        _EVERYTHING,
        ["settings.pulsar_ca_file=/x"],
        ["settings.pulsar_ca_file is given, and by secrets too"],
    ),
    (
        _SMALLEST,
        ["settings.sinks.a.kind=fcm", "settings.sinks.a.credentials=x"],
        ["settings.sinks.a.credentials would stand", "credentials_file"],
    ),
    (_SMALLEST, ["settings.sinks.a-dead.kind=webhook"], ["settings.sinks.a-dead", "-dead"]),
    (_EVERYTHING, ["secrets.sinks.existingSecret="], ["settings.sinks.fcm.credentials_file"]),
    (_SMALLEST, ["secrets.pulsar.tokenKey=t"], ["secrets.pulsar.tokenKey names a key of no"]),
    (_SMALLEST, ["secrets.redis.existingSecret=r"], ["no key of it is named", "passwordKey"]),
    (_EVERYTHING, ["secrets.pulsar.keyKey="], ["secrets.pulsar.certKey and keyKey go together"]),
    (_SMALLEST, [f"fullnameOverride={'x' * 31}"], ["longer than 30", "fullnameOverride"]),
    # groups and who scales them
    (_HPA, ["dispatchers.main.sinks={sms}"], ["no sink sms", "app, mail"]),
    (
        _HPA,
        ["dispatchers.main.autoscaling.keda.pollingInterval=5"],
        ["dispatchers.main.autoscaling has options of keda, and by is hpa"],
    ),
    (
        _HPA,
        ["dispatchers.main.replicas=3"],
        ["dispatchers.main.replicas is 3, and autoscaling.by is hpa"],
    ),
    (_HPA, ["dispatchers.main.autoscaling.maxReplicas=1"], ["minReplicas 2 is over maxReplicas 1"]),
    (
        _EVERYTHING,
        ["dispatchers.mail.autoscaling.keda.serverAddress="],
        ["dispatchers.mail.autoscaling.keda.serverAddress is needed"],
    ),
    (
        _SMALLEST,
        ["dispatchers.main.terminationGracePeriodSeconds=20"],
        ["terminationGracePeriodSeconds is 20", "40"],
    ),
    # one file for many pods
    (_EMBEDDED, ["dispatchers.main.replicas=2"], ["embedded", "dispatchers.main.replicas 2"]),
    (_EMBEDDED, ["dispatchers.a.workers=1", "dispatchers.b.workers=1"], ["embedded", "2 groups"]),
    (_EMBEDDED, ["dispatchers.main.autoscaling.by=keda"], ["embedded", "autoscaling"]),
    (_EMBEDDED, ["rules.enabled=true"], ["embedded", "leave out rules"]),
    (_EMBEDDED, ["serve.enabled=true", "serve.behindProxy={::1}"], ["embedded", "leave out serve"]),
    # shared folders
    (_SMALLEST, ["rules.enabled=true"], ["storage.fanout is needed by rules"]),
    (_SMALLEST, ["receipts.enabled=true"], ["storage.reports is needed by receipts"]),
    (
        _ONE_MACHINE,
        ["rules.replicas=2"],
        ["storage.fanout is ReadWriteOnce", "rules 1, rules 2", "ReadWriteMany"],
    ),
    (
        _ONE_MACHINE,
        ["alerts.enabled=true"],
        ["storage.reports is ReadWriteOnce", "receipts, alerts"],
    ),
    (
        _ONE_MACHINE,
        ["spark.executors.instances=2"],
        ["storage.reports is ReadWriteOnce", "storage.fanout is ReadWriteOnce", "executors"],
    ),
    # parts that make no sense together
    (_EVERYTHING, ["spark.master=spark://s:7077"], ["spark.master is spark://s:7077", "executors"]),
    (
        _EVERYTHING,
        ["spark.conf.spark\\.driver\\.host=x"],
        ["spark.conf has spark.driver.host, which is the chart's"],
    ),
    (
        _ONE_MACHINE,
        ["spark.master=spark://s:7077"],
        ["spark.master is spark://s:7077", "networkPolicy.sparkFrom"],
    ),
    (
        _ONE_MACHINE,
        ["spark.memory=4g"],
        ["spark.memory is 4g", "rules.resources.limits.memory 4Gi"],
    ),
    (_DAILY_JOB, ["spark.memory=5000m"], ["sparkJobs.daily.resources.limits.memory 4Gi"]),
    (
        _ONE_MACHINE,
        ["receipts.resources.limits.memory=1073741824"],
        ["spark.memory is 2g", "receipts.resources.limits.memory 1073741824"],
    ),
    (_ONE_MACHINE, ["settings.receipts=false"], ["settings.receipts is off"]),
    (_ONE_MACHINE, ["settings.receipts=off"], ["receipts.enabled is true, and settings.receipts"]),
    (_SMALLEST, ["serve.enabled=true"], ["tokens would cross the network", "serve.behindProxy"]),
    (_SMALLEST, ["serve.ingress.enabled=true"], ["serve.ingress.enabled is true, and serve.enab"]),
    (
        _SMALLEST,
        ["alerts.enabled=true", "storage.reports.size=1Gi"],
        ["alerts.enabled is true, and nobody fills the store"],
    ),
]


@pytest.mark.parametrize(
    ("values", "sets", "words"), _REFUSED, ids=["&".join(sets) for _, sets, _ in _REFUSED]
)
def test_it_is_refused_in_words(values: Path, sets: list[str], words: list[str]) -> None:
    rendered = render(values, sets=sets)

    assert rendered.exit_code != 0
    assert [word for word in words if word not in rendered.stderr] == [], rendered.stderr


@pytest.mark.parametrize("helm", HELMS)
def test_all_problems_are_told_at_once(helm: str) -> None:
    sets = ["settings.broker=", "settings.sink=", "rules.enabled=true"]

    said = render(_SMALLEST, sets=sets, helm=helm).stderr

    assert said.count("\n  - ") == 3, said
