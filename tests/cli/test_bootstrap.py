"""`bootstrap` before it asks anybody: what it prints for an administrator, and what it refuses."""

from __future__ import annotations

import pytest

from pushlane.backends.pulsar.policies import (
    JOURNAL_POLICIES,
    command_of,
    lane_policies,
    receipt_policies,
)
from pushlane.settings import Settings
from tests.command import Command

BROKER = ("--broker", "pulsar://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1")


def test_the_embedded_store_needs_none(command: Command) -> None:
    ran = command("bootstrap")

    assert ran.exit_code == 1
    assert "the embedded store needs none" in ran.stderr


def test_what_is_printed_for_an_administrator_asks_nobody(command: Command) -> None:
    ran = command("bootstrap", "--print", "--json", "--namespace", "company/lanes", *BROKER)

    assert ran.exit_code == 0
    pulsar, redis = ran.json["pulsar"], ran.json["redis"]
    assert pulsar[0] == (
        "pulsar-admin tenants create company --admin-roles pushlane-dispatcher,pushlane-writer"
    )
    grant = "pulsar-admin namespaces grant-permission company/lanes-receipts"
    assert f"{grant} --role pushlane-pipeline --actions produce,consume" in pulsar
    assert [line.split()[2] for line in redis] == ["pushlane-dispatcher", "pushlane-writer"]
    assert "~{company/lanes}:* " in redis[0]
    assert "claim" not in redis[1]


def test_every_policy_has_a_command() -> None:
    settings = Settings()
    policies = [
        *lane_policies(settings.but(retention_s=60.0)),
        *JOURNAL_POLICIES,
        *receipt_policies(settings),
    ]

    commands = {command_of(policy, "company/lanes") for policy in policies}

    assert all("company/lanes" in one for one in commands)
    assert "pulsar-admin namespaces set-retention company/lanes --time 1m --size -1" in commands


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--writer-role", "one", "--pipeline-role", "one"], "one name stands for two roles"),
        (["--writer-role", "a b"], "--writer-role 'a b' is not a name of a role"),
        (["--namespace", "lanes"], "not of the form tenant/name"),
    ],
)
def test_names_that_cannot_be_used_are_named(command: Command, flags: list[str], said: str) -> None:
    ran = command("bootstrap", "--print", *flags, *BROKER)

    assert ran.exit_code == 1
    assert said in ran.stderr


def test_a_broker_that_does_not_answer_ends_it_with_three(command: Command) -> None:
    ran = command("bootstrap", *BROKER)

    assert ran.exit_code == 3
    assert "http://127.0.0.1:1" in ran.stderr
