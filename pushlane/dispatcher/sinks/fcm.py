"""Sends each push to Firebase Cloud Messaging over its HTTP v1 API.

FCM knows no idempotency key: a push that is tried again may arrive twice. Its answers and what
becomes of a push by each are in docs/sinks.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
from google.auth.credentials import Credentials
from msgspec import Meta
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from pushlane.core.errors import BadInput
from pushlane.core.push import DELIVERED, Arrival, Outcome
from pushlane.dispatcher.sinks.fcm_answers import REFUSED, outcome_of
from pushlane.dispatcher.sinks.fcm_message import MessageEncoder, Target
from pushlane.dispatcher.sinks.google import AccessToken
from pushlane.dispatcher.sinks.google_credentials import read_credentials
from pushlane.dispatcher.sinks.http2_pool import Http2Pool
from pushlane.dispatcher.sinks.http_client import (
    MAX_ANSWER_BYTES,
    Timeouts,
    header_of,
    http2_builder,
    lost,
    read_answer,
)
from pushlane.lanes.ports import Delivery
from pushlane.lanes.urls import require_http_url
from pushlane.model.targets import PlainTarget, url_target

ENDPOINT = "https://fcm.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"

_JSON = {"Content-Type": "application/json"}
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")


class FcmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of FCM: `credentials` is the JSON of a service account, or of a workload identity.

    `project` is the one of the service account unless given. `address` says what the pushes'
    addresses are. With `dry_run` FCM checks messages and delivers none. `streams` is the most that
    is in flight on a connection.
    """

    credentials: str
    project: str = ""
    address: Target = Target.DEVICE
    endpoint: str = ENDPOINT
    dry_run: bool = False
    streams: Annotated[int, Meta(ge=1, le=1000)] = 100

    def __repr__(self) -> str:
        return f"FcmOptions(project={self.project!r})"

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> FcmSink:
        """Return the sink. Raises BadInput when credentials, project or endpoint cannot be."""
        credentials, project = self._signed_in()
        require_http_url(self.endpoint, f"endpoint is not a URL like {ENDPOINT}")
        return FcmSink(
            f"{self.endpoint.rstrip('/')}/v1/projects/{project}/messages:send",
            AccessToken(credentials),
            MessageEncoder(self.address, self.dry_run),
            slots,
            Timeouts(timeout_s, is_final=not retry_timeouts),
            streams=self.streams,
            to_devices=self.address.is_device,
        )

    def target(self) -> PlainTarget:
        """Return the project, at the endpoint; with `dry_run` FCM delivers none."""
        _, project = self._signed_in()
        return url_target("fcm", self.endpoint, project, delivers=not self.dry_run)

    def _signed_in(self) -> tuple[Credentials, str]:
        """Return the credentials and the project. Raises BadInput when one cannot be."""
        credentials, project = read_credentials(self.credentials, SCOPE)
        project = self.project or project
        if not project:
            raise BadInput("credentials name no project: give the option project")
        if not _PROJECT.fullmatch(project):
            raise BadInput(f"project {project[:40]!r} cannot be the id of a Firebase project")
        return credentials, project


class FcmSink:
    """One request a push, over as many HTTP/2 connections as its slots take."""

    name = "fcm"
    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    def __init__(
        self,
        url: str,
        token: AccessToken,
        messages: MessageEncoder,
        slots: int,
        timeouts: Timeouts,
        *,
        streams: int = 100,
        to_devices: bool = True,
    ) -> None:
        self._url = url
        self._token = token
        self._messages = messages
        self._timeouts = timeouts
        self._to_devices = to_devices
        self._has_delivered = False
        self._pool = Http2Pool(
            lambda: http2_builder(url, timeouts, _JSON).build(), streams, requests=slots
        )

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self._push(delivery) for delivery in batch]

    async def close(self) -> None:
        await self._token.close()
        await self._pool.close()

    async def _push(self, delivery: Delivery) -> Outcome:
        try:
            body = self._messages.body(delivery, time.time())
        except TypeError:
            return Outcome.dead("its payload for FCM is no JSON object", arrival=Arrival.REFUSED)
        header: str | Outcome = self._token.present() or await self._token.fresh()
        if isinstance(header, Outcome):
            return header
        outcome = await self._post(body, header)
        if outcome is REFUSED:
            header = await self._token.fresh(instead_of=header)
            outcome = header if isinstance(header, Outcome) else await self._post(body, header)
        return outcome

    async def _post(self, body: bytes, header: str) -> Outcome:
        try:
            async with self._pool.client() as client:
                request = client.post(self._url).header("Authorization", header).body_bytes(body)
                # An answer that fits is there as a whole, so that nothing is left to be drained.
                buffered = request.streamed_read_buffer_limit(MAX_ANSWER_BYTES)
                async with buffered.build_streamed() as response:
                    if response.status == 200:
                        self._has_delivered = True
                        return DELIVERED
                    return await self._refusal(response)
        except PyreqwestError as error:
            return lost(error, self._timeouts, "FCM")

    async def _refusal(self, response: Response) -> Outcome:
        return outcome_of(
            response.status,
            await read_answer(response),
            header_of(response, "Retry-After"),
            time.time(),
            has_delivered=self._has_delivered,
            to_device=self._to_devices,
        )
