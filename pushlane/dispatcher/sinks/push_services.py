"""Knows the push services that a Web Push may go to, and lets each rest by itself.

Browsers choose the endpoint, so that a row could name any URL: only those of services in the
operator's list are called. They are few, and known: each has a breaker of its own, as it says
nothing of another one that it fails, throttles us or refuses our key. Its pushes wait at no cost
while others go on. Once all that are in use rest, it is the sink that rests.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome, Scope
from pushlane.dispatcher.breaker import Breaker
from pushlane.dispatcher.failures import Flight

log = logging.getLogger("pushlane.push_services")

KNOWN_HOSTS = (
    "fcm.googleapis.com",
    "updates.push.services.mozilla.com",
    "*.push.apple.com",
    "*.notify.windows.com",
)
"""Chrome and those that stand on it, Firefox, Safari, Edge. Sources: Chromium's
components/push_messaging/push_messaging_constants.cc, https://mozilla-services.github.io/autopush-rs,
https://developer.apple.com/documentation/usernotifications/sending-web-push-notifications-in-web-apps-and-browsers,
https://learn.microsoft.com/en-us/windows/apps/develop/notifications/push-notifications/wns-overview.
"""

_ENTRY = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*")


class PushService:
    """One entry of the list of hosts, with the breaker of all that it stands for.

    `has_delivered` shows that our key is good: what it refuses then is not about the key.
    """

    def __init__(self, name: str, slots: int) -> None:
        self.name = name
        # It never loses patience: the breaker of the sink does.
        self.breaker = Breaker(slots, math.inf, scope=Scope.HOST, quotes=True)
        self.has_delivered = False
        self.is_known_to_rest = False


class PushServices:
    """The services by host. An entry is a host, or `*.` and the domain that hosts end in.

    `slots` is the most that is in flight; `clock_s` returns a time that never goes back. Raises
    BadInput, with its name, for an entry that is neither, so that no endpoint could be of it.
    """

    def __init__(self, hosts: Sequence[str], slots: int, clock_s: Callable[[], float]) -> None:
        self._slots = slots
        self._clock_s = clock_s
        names = [host.strip().lower() for host in hosts]
        for name in names:
            if not _ENTRY.fullmatch(name):
                raise BadInput(
                    f"{name!r} is not a host of a push service: give names as they stand in "
                    "endpoints (push.example.com, *.push.example.com)"
                )
        self._hosts = frozenset(name for name in names if not name.startswith("*."))
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))
        self._services: dict[str, PushService] = {}

    def of(self, host: str) -> PushService | None:
        """Return the service that a host is of, None for one that is not in the list."""
        endings = (f"*{ending}" for ending in self._endings if host.endswith(ending))
        name = host if host in self._hosts else next(endings, "")
        if not name:
            return None
        if name not in self._services:
            self._services[name] = PushService(name, self._slots)
        return self._services[name]

    def refusal(self, service: PushService) -> Outcome | None:
        """Return what becomes of a push while its service takes none; None if it may go.

        Alone in use it is always asked: then the breaker of the sink decides.
        """
        if service.breaker.room(self._clock_s(), 1) or self._is_alone(service):
            return None
        return Outcome.throttled(f"{service.name} takes no pushes now", scope=Scope.HOST)

    def admit(self, service: PushService) -> int:
        """Count a push that goes to a service; return the leave to report it with."""
        return service.breaker.admit(self._clock_s(), 1)

    def give_back(self, service: PushService, leave: int) -> None:
        """Count off a push that did not go."""
        service.breaker.give_back(leave, 1)

    def landed(
        self, service: PushService, leave: int, delivery: Delivery, outcome: Outcome
    ) -> Outcome:
        """Hear what became of a push; return it as the sink is to tell it.

        It is about the service alone as long as another one is in use and does not rest.
        """
        now_s, breaker = self._clock_s(), service.breaker
        if outcome is DELIVERED:
            service.has_delivered = True
            if breaker.landed_well(now_s, leave, 1):
                return outcome
        push = delivery.push
        flight = Flight(push.push_id, push.task_id, "", is_charged=push.attempt > 1)
        wait_s = breaker.landed(now_s, leave, flight, outcome)
        self._note(service)
        if outcome.kind is Kind.DELIVERED or outcome.scope in (Scope.PUSH, Scope.RECIPIENT):
            return outcome
        if self._is_alone(service):
            return replace(outcome, scope=Scope.SINK) if outcome.scope is Scope.HOST else outcome
        if wait_s is not None:
            return replace(outcome, kind=Kind.RETRY, scope=Scope.HOST, refuses_us=False)
        if outcome.scope in (Scope.SINK, Scope.HOST):
            return Outcome.retry(outcome.reason, outcome.after_s, arrival=outcome.arrival)
        return outcome

    def _is_alone(self, service: PushService) -> bool:
        """Tell whether no other service is in use, or all others rest."""
        return all(one.breaker.rests for one in self._services.values() if one is not service)

    def _note(self, service: PushService) -> None:
        """Say when a service begins to rest while others go on, and when it goes on."""
        rests = service.breaker.rests
        if rests == service.is_known_to_rest or (rests and self._is_alone(service)):
            return
        service.is_known_to_rest = rests
        if rests:
            why = service.breaker.view().reason
            extra = {"action": "push_service_rests"}
            log.warning("push service %s rests: %s", service.name, why, extra=extra)
        else:
            extra = {"action": "push_service_goes_on"}
            log.info("push service %s goes on", service.name, extra=extra)
