"""What the pods would run, run here: its probes succeed, and SIGTERM ends it in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.core.task import Level
from pushlane.model.streams import Stream, change_stream
from pushlane.settings import Settings
from scripts.chart import CHART
from tests.certificates import Authority
from tests.chart.container import Container
from tests.chart.manifests import PROBES, Rendered, render
from tests.processes import Pushlane, until

_EMBEDDED = CHART / "ci/embedded.yaml"
_ONE_MACHINE = CHART / "ci/one-machine.yaml"
_DAILY_JOB = CHART / "ci/daily-job.yaml"
_AUDIENCE = "device,name\n" + "".join(f"device-{n},user {n}\n" for n in range(1, 11))

_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

Secrets = Mapping[str, Mapping[str, str]]
Start = Callable[..., Container]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the container of the pods of a deployment or a job."""
    started: list[Container] = []

    def start(rendered: Rendered, name: str, secrets: Secrets | None = None) -> Container:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Container(rendered, dict(rendered.pods())[name], folder, secrets))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def on_pulsar(pulsar_settings: Settings) -> list[str]:
    """Values that name the Pulsar and the Redis of the tests."""
    names = ("broker", "admin_url", "redis_url", "namespace")
    return [f"settings.{name}={getattr(pulsar_settings, name)}" for name in names]


def ends_well(container: Container) -> None:
    for probe in PROBES:
        container.wait_for(probe)
    assert container.stop() == 0, container.log


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dispatcher_on_an_embedded_store(start: Start, workers: int) -> None:
    rendered = render(_EMBEDDED, sets=[f"dispatcherDefaults.workers={workers}"])

    ends_well(start(rendered, "Deployment push-pushlane-dispatch-main"))


def test_secrets_reach_the_process(start: Start) -> None:
    sink = {"kind": "webhook", "url": "http://127.0.0.1:9/push"}
    sink |= {"secrets_file": "/run/secrets/pushlane/sinks/app"}
    sets = [f"settings.sinks.app.{name}={value}" for name, value in sink.items()]
    sets += ["secrets.sinks.existingSecret=sinks", "secrets.keys.existingSecret=keys"]
    rendered = render(_EMBEDDED, sets=[*sets, "secrets.keys.addressKey=address"])
    name = "Deployment push-pushlane-dispatch-main"

    ends_well(start(rendered, name, {"sinks": {"app": f"whsec_{_KEY}"}, "keys": {"address": _KEY}}))

    for named, secrets in {
        "secrets_file": {"sinks": {"app": ""}, "keys": {"address": _KEY}},
        "address_key": {"sinks": {"app": f"whsec_{_KEY}"}, "keys": {"address": "short"}},
    }.items():
        refused = start(rendered, name, secrets)
        assert refused.wait() == 1
        assert named in refused.log


@pytest.mark.pulsar
@pytest.mark.parametrize(
    "name", ["dispatch-main", "rules", "receipts", "alerts", "serve"], ids=lambda name: name
)
def test_a_deployment_on_pulsar(start: Start, on_pulsar: Sequence[str], name: str) -> None:
    more = ["alerts.enabled=true", "storage.reports.accessMode=ReadWriteMany"]
    more += ["serve.enabled=true", "serve.behindProxy={10.0.0.0/8}", "serve.mostRequests=5000"]
    rendered = render(_ONE_MACHINE, sets=[*on_pulsar, *more])

    ends_well(start(rendered, f"Deployment push-pushlane-{name}"))


@pytest.mark.pulsar
def test_an_ingest_on_pulsar_keeps_a_bad_record(
    start: Start, on_pulsar: Sequence[str], pulsar_settings: Settings, tmp_path: Path
) -> None:
    stream = Stream(name="events", app="shop", level=Level.LOW)
    events = tmp_path / "events"
    events.mkdir()
    (events / "a.jsonl").write_text("[]\n")
    given = {"source": events, "stream": "events", "badRecords.size": "1Gi"}
    given |= {"mapping.recipient": "device"}
    sets = [f"ingests.files.{name}={value}" for name, value in given.items()]
    asyncio.run(_add(pulsar_settings, stream))
    rendered = render(_ONE_MACHINE, sets=[*on_pulsar, *sets])

    container = start(rendered, "StatefulSet push-pushlane-ingest-files")
    until(lambda: any(tmp_path.rglob("records.jsonl")))
    ends_well(container)


async def _add(settings: Settings, stream: Stream) -> None:
    async with connect(settings) as backend:
        await change_stream(backend.documents, stream.app, stream.name, lambda _: stream)


@pytest.mark.pulsar
def test_a_certificate_reaches_the_api(
    start: Start, on_pulsar: Sequence[str], tmp_path: Path
) -> None:
    pair = Authority(tmp_path / "authority").sign("push", ["127.0.0.1"])
    secret = {"tls.crt": pair.cert.read_text(), "tls.key": pair.key.read_text()}
    sets = [*on_pulsar, "serve.enabled=true", "serve.tls.existingSecret=push-tls"]

    api = start(
        render(_ONE_MACHINE, sets=sets), "Deployment push-pushlane-serve", {"push-tls": secret}
    )

    ends_well(api)
    assert "serving at https://127.0.0.1:" in api.log


@pytest.mark.pulsar
def test_a_pod_that_follows_another_of_its_job_makes_no_second_task(
    on_pulsar: Sequence[str], tmp_path: Path, pulsar_settings: Settings
) -> None:
    audiences = tmp_path / "claims/audiences"
    audiences.mkdir(parents=True)
    (audiences / "users.csv").write_text(_AUDIENCE)
    rendered = render(_DAILY_JOB, sets=on_pulsar)
    pod = dict(rendered.pods())["CronJob push-pushlane-job-daily"]

    said = [
        Container(rendered, pod, tmp_path / run, job_name=job_name).run()
        for run, job_name in (("1", "daily-1"), ("2", "daily-1"))
    ]

    assert "10 pushes on the lane" in said[0]
    assert "nothing published now" in said[1]
    assert (
        Pushlane(tmp_path, _named(pulsar_settings)).json("task", "show", "daily-1")["total"] == 10
    )


def _named(settings: Settings) -> dict[str, str]:
    names = ("broker", "admin_url", "redis_url", "namespace", "data_dir")
    return {name: str(getattr(settings, name)) for name in names}
