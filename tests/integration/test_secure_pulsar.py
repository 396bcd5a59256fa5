"""Pulsar with TLS, authentication and authorization on: who gets in, and what others are told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pushlane.backends.backend import Backend, connect, connect_receipts
from pushlane.backends.operations import BootstrapStep, Roles
from pushlane.backends.pulsar.admin import connect_admin
from pushlane.backends.pulsar.bootstrap import bootstrap
from pushlane.backends.pulsar.broker import PulsarBroker
from pushlane.backends.pulsar.connection import open_connection
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.push import Push
from pushlane.settings import Settings
from pushlane.util.errors import Denied, MissingPermission
from pushlane.util.texts import Secret
from tests.certificates import Authority
from tests.command import Command, Ran
from tests.contract.reading import Reading, bodies, until
from tests.emulators.token_issuer import TokenIssuer
from tests.secure_pulsar import ADMINISTRATOR, SecurePulsar

pytestmark = [pytest.mark.pulsar, pytest.mark.xdist_group("secure pulsar")]

ROLES = Roles("dispatcher", "writer", "pipeline")
NAMESPACE = "company/lanes"
ROLE_FLAGS = [word for role in ROLES for word in (f"--{role}-role", role)]


@pytest.fixture(scope="module")
def pulsar(secure_pulsar: SecurePulsar) -> SecurePulsar:
    """The broker, after its administrator ran `bootstrap`."""
    settings = secure_pulsar.of_role(ADMINISTRATOR, NAMESPACE)
    asyncio.run(bootstrap(settings, ROLES, dry_run=False))
    return secure_pulsar


@asynccontextmanager
async def broker_of(settings: Settings) -> AsyncIterator[PulsarBroker]:
    async with connect_admin(settings) as admin, open_connection(settings, admin.credentials) as on:
        broker = PulsarBroker(on, admin, settings)
        yield broker
        await broker.close()


async def moved(broker: PulsarBroker, lane: str, body: bytes) -> list[bytes]:
    """Publish on a lane, and return what a reader of it gets."""
    await broker.open_lane(lane)
    reading = await Reading.of(broker, lane)
    await broker.publish(lane, [body])
    taken = await reading.take(1)
    await broker.ack(taken)
    await reading.close()
    return bodies(taken)


async def admin_error(settings: Settings) -> PushlaneError:
    async with connect_admin(settings) as admin:
        with pytest.raises(PushlaneError) as refused:
            await admin.call("GET", f"/persistent/{NAMESPACE}", "list the lanes")
    return refused.value


def test_a_dry_run_says_what_is_missing_and_makes_nothing(secure_pulsar: SecurePulsar) -> None:
    settings = secure_pulsar.of_role(ADMINISTRATOR, "nobodys/lanes")

    first = asyncio.run(bootstrap(settings, ROLES, dry_run=True))
    second = asyncio.run(bootstrap(settings, ROLES, dry_run=True))

    assert {step.state for step in first} == {"missing"}
    assert second == first


def test_what_bootstrap_made_is_there_the_next_time(pulsar: SecurePulsar) -> None:
    settings = pulsar.of_role(ADMINISTRATOR, NAMESPACE)

    steps: list[BootstrapStep] = asyncio.run(bootstrap(settings, ROLES, dry_run=False))

    assert {step.state for step in steps} == {"there"}


@pytest.mark.parametrize("role", ["dispatcher", "stranger"])
def test_bootstrap_by_who_may_not_names_the_authority(pulsar: SecurePulsar, role: str) -> None:
    settings = pulsar.of_role(role, "elsewhere/lanes")

    with pytest.raises(MissingPermission, match=f"role {role} lacks .*only a superuser has it"):
        asyncio.run(bootstrap(settings, ROLES, dry_run=False))


@pytest.mark.parametrize("role", ["dispatcher", "writer"])
async def test_a_token_of_its_role_moves_messages(pulsar: SecurePulsar, role: str) -> None:
    async with broker_of(pulsar.of_role(role, NAMESPACE)) as broker:
        assert await moved(broker, f"task-{role}", b"1") == [b"1"]
        assert await broker.drop_lane(f"task-{role}")


async def test_a_certificate_of_its_role_moves_messages(pulsar: SecurePulsar) -> None:
    pair = pulsar.authority.sign("dispatcher")
    own = {"pulsar_cert_file": pair.cert, "pulsar_key_file": pair.key}

    async with broker_of(pulsar.settings(NAMESPACE, **own)) as broker:
        assert await moved(broker, "task-by-certificate", b"1") == [b"1"]


async def test_who_shows_nothing_is_told_what_to_set(pulsar: SecurePulsar) -> None:
    error = await admin_error(pulsar.settings(NAMESPACE))

    assert isinstance(error, Denied)
    assert "none are set: set pulsar_token_file, pulsar_cert_file" in str(error)


async def test_an_expired_token_is_called_so_with_its_place(
    pulsar: SecurePulsar, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(pulsar.token("dispatcher", for_s=-60))

    error = await admin_error(pulsar.settings(NAMESPACE, pulsar_token_file=file))

    assert isinstance(error, Denied)
    assert f"pulsar_token_file {file} has expired at 20" in str(error)
    assert file.read_text() not in str(error)


async def test_a_token_of_another_key_is_not_accepted(pulsar: SecurePulsar) -> None:
    token = Secret(pulsar.token("dispatcher", key=b"another key of tokens, long enough"))

    error = await admin_error(pulsar.settings(NAMESPACE, pulsar_token=token))

    assert isinstance(error, Denied)
    assert "the token of pulsar_token is not accepted" in str(error)


async def test_a_broker_of_another_authority_is_told_nothing(
    pulsar: SecurePulsar, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "another authority")
    settings = pulsar.of_role("dispatcher", NAMESPACE, pulsar_ca_file=other.ca)

    error = await admin_error(settings)
    with pytest.raises(Unreachable) as refused:
        async with open_connection(settings):
            pass

    for said in (str(error), str(refused.value)):
        assert f"not signed by an authority in {other.ca}" in said


async def test_who_lacks_a_permission_hears_which_and_the_command(pulsar: SecurePulsar) -> None:
    async with broker_of(pulsar.of_role("pipeline", NAMESPACE)) as broker:
        with pytest.raises(MissingPermission) as made:
            await broker.open_lane("task-of-nobody")
    async with broker_of(pulsar.of_role("stranger", NAMESPACE)) as broker:
        with pytest.raises(MissingPermission) as listed:
            await broker.lanes()

    assert "CREATE_TOPIC" in str(made.value)
    assert "tenants update company --admin-roles pipeline" in str(made.value)
    grant = f"grant-permission {NAMESPACE} --role stranger --actions produce,consume"
    assert grant in str(listed.value)


async def test_who_may_not_make_topics_uses_those_that_are_there(pulsar: SecurePulsar) -> None:
    """A writer without the tenant's admin can still put low tasks on the pool."""
    async with broker_of(pulsar.of_role("dispatcher", NAMESPACE)) as broker:
        await broker.open_lane("pool-0")
    async with connect_admin(pulsar.of_role(ADMINISTRATOR, NAMESPACE)) as admin:
        path = f"/namespaces/{NAMESPACE}/permissions/modest"
        await admin.call("POST", path, "let modest write", ["produce", "consume"])

    async with broker_of(pulsar.of_role("modest", NAMESPACE)) as broker:
        assert await moved(broker, "pool-0", b"1") == [b"1"]


async def test_the_pipeline_reads_receipts_without_being_an_admin(pulsar: SecurePulsar) -> None:
    async with connect_receipts(pulsar.of_role("dispatcher", NAMESPACE)) as log:
        await log.append([b"a receipt"])

    async with connect_receipts(pulsar.of_role("pipeline", NAMESPACE)) as log:
        begin = await log.first()
        end = await log.advance(begin)
        found = [
            body
            for partition, (first, last) in enumerate(zip(begin, end, strict=True))
            async for page in log.read(partition, first, last)
            for body in page
        ]
        await log.commit(end)

        assert found == [b"a receipt"]
        assert await log.committed() == end


async def test_a_token_that_is_replaced_in_time_is_taken_without_a_word(
    pulsar: SecurePulsar, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(pulsar.token("dispatcher", for_s=4))

    async with broker_of(pulsar.settings(NAMESPACE, pulsar_token_file=file)) as broker:
        assert await moved(broker, "task-rotated", b"1") == [b"1"]
        reading = await Reading.of(broker, "task-rotated")
        replace(file, pulsar.token("dispatcher"))
        await expiry(pulsar, file)

        await broker.publish("task-rotated", [b"2"])

        assert bodies(await reading.take(1)) == [b"2"]
        await reading.close()


async def test_with_an_expired_token_it_waits_and_goes_on_with_a_new_one(
    pulsar: SecurePulsar, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(pulsar.token("dispatcher", for_s=3))

    async with broker_of(pulsar.settings(NAMESPACE, pulsar_token_file=file)) as broker:
        assert await moved(broker, "task-late", b"1") == [b"1"]
        reading = await Reading.of(broker, "task-late")
        said = ""

        async def is_refused() -> bool:
            nonlocal said
            try:
                await broker.backlog("task-late")
            except Denied as error:
                said = str(error)
            return bool(said) and reading.reader.is_lost

        await until(is_refused)
        replace(file, pulsar.token("dispatcher"))
        await published(broker, "task-late", b"2")

        assert f"pulsar_token_file {file} has expired" in said
        assert (await reading.take(1))[0].body == b"2"
        await reading.close()


async def test_oauth2_tokens_serve_data_and_admin_and_are_fetched_anew(
    pulsar: SecurePulsar, tmp_path: Path
) -> None:
    issuer = TokenIssuer(lambda: pulsar.token("dispatcher", for_s=600))
    async with issuer.running():
        settings = oauth2(pulsar, issuer, tmp_path)
        async with broker_of(settings) as broker:
            assert await moved(broker, "task-oauth2", b"1") == [b"1"]
            before = len(issuer.asked)

            issuer.clients = {"dispatch": "a new secret"}
            replace(tmp_path / "client.json", issuer.client(client_secret="a new secret"))
            await broker.lanes()

    assert before == 1
    assert issuer.asked[0]["audience"] == "urn:lanes"
    assert [form["client_secret"] for form in issuer.asked] == ["hush-hush", "a new secret"]


async def test_an_oauth2_client_that_is_refused_is_named_without_its_secret(
    pulsar: SecurePulsar, tmp_path: Path
) -> None:
    issuer = TokenIssuer(lambda: "none")
    issuer.clients = {}
    async with issuer.running():
        error = await admin_error(oauth2(pulsar, issuer, tmp_path))

    assert isinstance(error, Denied)
    assert "status 401, invalid_client" in str(error)
    assert str(tmp_path / "client.json") in str(error)
    assert "hush-hush" not in str(error)


async def test_a_whole_backend_runs_with_roles(pulsar: SecurePulsar, redis_url: str) -> None:
    own = {"redis_url": redis_url}

    async with (
        connect(pulsar.of_role("writer", NAMESPACE, **own)) as writer,
        connect(pulsar.of_role("dispatcher", NAMESPACE, **own)) as dispatcher,
    ):
        await weights_travel(writer, dispatcher)
        claimed = await dispatcher.ledger.claim([Push("t", 1, "nobody")], "me", 1.0)

    assert len(claimed) == 1


def test_commands_run_with_the_roles_of_their_processes(
    pulsar: SecurePulsar, redis_url: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pulsar.settings("company/commands", redis_url=redis_url).items():
        if name in ("broker", "admin_url", "pulsar_ca_file", "namespace", "redis_url"):
            monkeypatch.setenv(f"PUSHLANE_{name.upper()}", str(value))

    def run_as(role: str, *words: str | Path, for_s: float | None = None) -> Ran:
        token = command.file(f"{role}.token", pulsar.token(role, for_s))
        monkeypatch.setenv("PUSHLANE_PULSAR_TOKEN_FILE", str(token))
        return command(*words)

    made = run_as(ADMINISTRATOR, "bootstrap", *ROLE_FLAGS)
    rows = command.file("rows.csv", "recipient\none\ntwo\n")
    submitted = run_as("writer", "submit", rows, "--level", "high", "--title", "Hi")
    late = run_as("dispatcher", "dispatch", "--sink", "null", for_s=-60)
    dispatched = run_as("dispatcher", "dispatch", "--drain", "--sink", "null")
    shown = run_as("writer", "task", "show", submitted.stdout.strip(), "--json")

    assert [ran.exit_code for ran in (made, submitted, late, dispatched)] == [0, 0, 3, 0]
    assert "dispatcher.token has expired at" in late.stderr
    assert shown.json["delivered"] == 2


async def weights_travel(one: Backend, other: Backend) -> None:
    weights = await one.registry.weights()
    await one.registry.set_weights(weights)
    assert await other.registry.weights() == weights


def oauth2(pulsar: SecurePulsar, issuer: TokenIssuer, folder: Path) -> Settings:
    file = folder / "client.json"
    file.write_text(issuer.client())
    return pulsar.settings(
        NAMESPACE,
        pulsar_oauth2_issuer_url=issuer.url,
        pulsar_oauth2_key_file=file,
        pulsar_oauth2_audience="urn:lanes",
    )


def replace(file: Path, text: str) -> None:
    """Put a new file in the place of an old one, as Kubernetes and certificate managers do."""
    new = file.with_name("new")
    new.write_text(text)
    os.replace(new, file)


async def expiry(pulsar: SecurePulsar, file: Path) -> None:
    """Wait until the broker refuses a token that was made with the first one."""
    twin = Secret(pulsar.token("dispatcher", for_s=4))
    async with connect_admin(pulsar.settings(NAMESPACE, pulsar_token=twin)) as admin:

        async def is_over() -> bool:
            reply = await admin.call("GET", "/clusters", "look", allow=(401,))
            return reply.status == 401

        await until(is_over)


async def published(broker: PulsarBroker, lane: str, body: bytes) -> None:
    """Publish as a dispatcher does: again, until the broker takes it."""

    async def is_published() -> bool:
        try:
            await broker.publish(lane, [body])
        except Unreachable:
            return False
        return True

    await until(is_published)
