"""Every answer of Pulsar has a meaning in our own errors."""

from __future__ import annotations

from types import SimpleNamespace

import _pulsar
import pytest

from pushlane.backends.pulsar.vendor_errors import MEANINGS, failure, refusal, unanswered
from pushlane.core.errors import BadInput, PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.util.errors import Denied, MissingPermission, OversizedPush

URL = "pulsar://broker.test:6650"


def test_the_map_names_every_result_code_and_no_other() -> None:
    codes = set(_pulsar.Result.__members__) - {"Ok"}

    assert set(MEANINGS) == codes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Timeout", Unreachable),
        ("AuthenticationError", Denied),
        ("AuthorizationError", MissingPermission),
        ("ProducerBlockedQuotaExceededException", Unreachable),
        ("ProducerBusy", TaskConflict),
        ("TopicNotFound", UnknownLane),
        ("MessageTooBig", OversizedPush),
        ("InvalidUrl", BadInput),
    ],
)
def test_a_result_becomes_our_error_with_url_and_code(
    name: str, expected: type[PushlaneError]
) -> None:
    result = _pulsar.Result.__members__[name]

    error = failure(result, URL, "read lane x")

    assert type(error) is expected
    assert URL in str(error)
    assert "read lane x" in str(error)
    assert f"{name}, code {result.value}" in str(error)


def test_a_code_that_a_later_client_adds_is_unreachable_and_named() -> None:
    error = failure(SimpleNamespace(name="Novelty", value=99), URL, "read lane x")

    assert type(error) is Unreachable
    assert "Novelty, code 99" in str(error)


@pytest.mark.parametrize("status", [*range(300, 309), *range(400, 600)])
def test_every_status_of_the_admin_becomes_our_error_and_is_named(status: int) -> None:
    error = refusal(status, "why", "http://admin.test", "open lane x")

    assert isinstance(error, BadInput | Unreachable | UnknownLane)
    assert f"status {status}, why" in str(error)
    assert "http://admin.test" in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_points_to_the_token(status: int) -> None:
    assert "PUSHLANE_PULSAR_TOKEN" in str(refusal(status, "", "http://admin.test", "open lane x"))


@pytest.mark.parametrize("status", [307, 409, 429, 500, 503])
def test_a_passing_trouble_of_the_admin_may_be_tried_again(status: int) -> None:
    assert type(refusal(status, "", "http://admin.test", "open lane x")) is Unreachable


@pytest.mark.parametrize(
    "reason",
    [
        "Failed to find ownership for topic:persistent://a/b/c",
        "Can't find owner for topic persistent://a/b/c",
        "Can't find owner of ServiceUnit: a/b/0x00_0xff",
        "Cluster is in the middle of an election",
        "",
    ],
)
def test_a_topic_that_no_broker_serves_for_the_moment_may_be_tried_again(reason: str) -> None:
    assert type(refusal(412, reason, "http://admin.test", "open lane x")) is Unreachable


@pytest.mark.parametrize(
    "reason",
    [
        "Namespace name is not valid",
        "Topic Name is invalid",
        "Clusters [x] do not exist.",
        "Backlog Quota exceeds configured retention quota for namespace.",
    ],
)
def test_a_value_that_the_broker_refuses_is_a_wrong_setting(reason: str) -> None:
    assert type(refusal(412, reason, "http://admin.test", "open lane x")) is BadInput


@pytest.mark.parametrize("reason", ["Topic persistent://a/b/c not found", "Topic not found"])
def test_a_topic_that_is_not_there_is_an_unknown_lane(reason: str) -> None:
    assert type(refusal(404, reason, "http://admin.test", "open lane x")) is UnknownLane


@pytest.mark.parametrize("reason", ["Namespace not found", "Tenant does not exist", ""])
def test_a_broker_that_has_not_heard_of_the_namespace_may_be_tried_again(reason: str) -> None:
    assert type(refusal(404, reason, "http://admin.test", "list lanes")) is Unreachable


def test_an_admin_that_does_not_answer_is_named_with_what_to_do() -> None:
    error = unanswered(TimeoutError(), "http://admin.test", "open lane x")

    assert "http://admin.test" in str(error)
    assert "pushlane up" in str(error)
